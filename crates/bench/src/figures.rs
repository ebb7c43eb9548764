//! Results of the benchmark, as in `bench.json`.

use serde::{Deserialize, Serialize};

use super::path::{DataPath, SessionLane};
use carnet_testbed::machine::MachineDescription;

/// Name of the arrangement without a router.
pub const SOURCE_AND_SINK: &str = "source and sink alone";

/// Content of `bench.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BenchResults {
    /// The machine on which the benchmark ran.
    pub machine: MachineDescription,
    /// Time when the run began, in UTC.
    pub time: String,
    /// Load averages of the machine before the run.
    pub load_before: [f64; 3],
    /// Shares of all cores that other programs, and a hypervisor's other guests, used during the run.
    #[serde(default, rename = "others")]
    pub core_shares_of_others: [f64; 2],
    /// Reasons why the figures are not reliable: the machine was busy. Empty for a quiet machine.
    #[serde(default)]
    pub disturbed: Vec<String>,
    /// Whether the run had `--quick`.
    pub quick: bool,
    /// The core on which packets were measured.
    pub core: usize,
    /// Largest number of packets in transit at a time.
    pub window: u64,
    /// Duration of the run in seconds.
    pub duration_s: f64,
    /// The compared data paths.
    pub paths: Vec<PathFigure>,
    /// Figures of packets per second.
    pub packets: Vec<PacketFigure>,
    /// Figures of TCP transfers.
    pub tcp: Vec<TcpFigure>,
    /// Figures of packets per second of IPv4 and, for comparison, of IPv6.
    #[serde(default)]
    pub ipv4: Vec<PacketFigure>,
    /// Figures of TCP transfers over IPv4.
    #[serde(default)]
    pub ipv4_tcp: Vec<TcpFigure>,
    /// Figures of packets per second with a ruleset and connection tracking in the routers.
    #[serde(default)]
    pub ruleset: Vec<PacketFigure>,
    /// Figures of round-trip times.
    pub rtt: Vec<RttFigure>,
    /// Figures of processor time.
    pub cpu: Vec<CpuFigure>,
    /// Figures of handovers under load.
    pub handover: Vec<HandoverFigure>,
    /// Figures of a home agent with many bindings.
    pub bindings: Vec<BindingsFigure>,
    /// Figures of starts of a home agent with many bindings.
    pub starts: Vec<StartFigure>,
    /// Figures of many routers that register.
    #[serde(default)]
    pub registrations: Vec<RegistrationsFigure>,
    /// Figures of a home agent under attack.
    #[serde(default)]
    pub attacks: Vec<AttackFigure>,
    /// Figures of TCP transfers through encrypted tunnels.
    #[serde(default)]
    pub sessions: Vec<SessionSpeedFigure>,
    /// Figures of many routers with sessions at one home agent.
    #[serde(default)]
    pub handshakes: Vec<HandshakesFigure>,
    /// Figures of a home agent whose tunnel port is flooded.
    #[serde(default)]
    pub session_floods: Vec<SessionFloodFigure>,
    /// Figures of several machines that serve as home agents together while one of them is killed.
    #[serde(default)]
    pub takeovers: Vec<TakeoverFigure>,
    /// Figures of several machines that serve as home agents together during a series of faults.
    #[serde(default)]
    pub faults: Vec<FaultsFigure>,
    /// Performance targets, and whether this run meets them.
    pub targets: Vec<PerformanceTarget>,
    /// Origin of figures from other runs: kind of the figures, time and machine of the run.
    #[serde(default, rename = "others_runs")]
    pub runs_of_others: Vec<String>,
}

impl BenchResults {
    /// Replaces results by those of another run. If one run has compared several paths, replaces the results
    /// of these paths together, and otherwise path by path. Keeps results that are newer than those of the
    /// other run.
    pub fn merge(&mut self, mut other: BenchResults) {
        self.drop_older_figures(&mut other);
        let mut taken = Vec::new();
        // Kinds of figures whose values now all come from the other run.
        let mut replaced = Vec::new();
        let mut whole = |what: &'static str, is_there: bool| {
            if is_there {
                taken.push(what);
                replaced.push(what);
            }
            is_there
        };
        if whole("packets per second", !other.packets.is_empty()) {
            self.packets = other.packets;
        }
        if whole("TCP", !other.tcp.is_empty()) {
            self.tcp = other.tcp;
        }
        if whole("IPv4", !other.ipv4.is_empty()) {
            (self.ipv4, self.ipv4_tcp) = (other.ipv4, other.ipv4_tcp);
        }
        if whole("ruleset", !other.ruleset.is_empty()) {
            self.ruleset = other.ruleset;
        }
        if whole("round-trip times", !other.rtt.is_empty()) {
            self.rtt = other.rtt;
        }
        if whole("processor time", !other.cpu.is_empty()) {
            self.cpu = other.cpu;
        }
        if whole("handovers", !other.handover.is_empty()) {
            self.handover = other.handover;
        }
        if whole("many bindings", !other.bindings.is_empty()) {
            (self.bindings, self.starts) = (other.bindings, other.starts);
        }
        if whole("encrypted TCP", !other.sessions.is_empty()) {
            self.sessions = other.sessions;
        }
        if whole("handshakes", !other.handshakes.is_empty()) {
            self.handshakes = other.handshakes;
        }
        if whole("floods of handshakes", !other.session_floods.is_empty()) {
            self.session_floods = other.session_floods;
        }
        for (what, put) in [
            (
                "registrations",
                replace_figures_of_paths(&mut self.registrations, other.registrations, |figure| figure.path),
            ),
            ("attacks", replace_figures_of_paths(&mut self.attacks, other.attacks, |figure| figure.path)),
            (
                "takeovers",
                replace_figures_of_paths(&mut self.takeovers, other.takeovers, |figure| figure.path),
            ),
            ("faults", replace_figures_of_paths(&mut self.faults, other.faults, |figure| figure.path)),
        ] {
            taken.extend(put.map(|_| what));
            replaced.extend(put.filter(|is_all| *is_all).map(|_| what));
        }
        if taken.is_empty() {
            return;
        }
        let machine = &other.machine;
        let commit = machine.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        let disturbed = match &other.disturbed[..] {
            [] => String::new(),
            all => format!(", where {}", all.join(" and ")),
        };
        let (what, carnet) = (taken.join(", "), &machine.carnet);
        let run = format!("{what}: {}, {carnet}{commit}{disturbed}", other.time);
        self.runs_of_others.retain(|known| {
            let kinds = known.split_once(": ").map_or("", |(kinds, _)| kinds);
            *known != run && !kinds.split(", ").all(|kind| replaced.contains(&kind))
        });
        self.runs_of_others.push(run);
    }

    /// Returns the time of the newest figure of this kind.
    fn time_of_figures(&self, kind: &str) -> &str {
        let runs = self.runs_of_others.iter().filter_map(|run| run.split_once(": "));
        let times = runs.filter(|(kinds, _)| kinds.split(", ").any(|it| it == kind));
        // The entries have the form "2026-11-26 02:34:35 UTC, carnet ...", so their text order is their order
        // in time.
        times.filter_map(|(_, rest)| rest.split(',').next()).max().unwrap_or(&self.time)
    }

    fn drop_older_figures(&self, other: &mut BenchResults) {
        let time = other.time.clone();
        let is_older = |kind: &str| time.as_str() < self.time_of_figures(kind);
        drop_replaced_figures(&mut other.packets, &self.packets, is_older("packets per second"), |_, _| true);
        drop_replaced_figures(&mut other.tcp, &self.tcp, is_older("TCP"), |_, _| true);
        drop_replaced_figures(&mut other.ipv4, &self.ipv4, is_older("IPv4"), |_, _| true);
        drop_replaced_figures(&mut other.ipv4_tcp, &self.ipv4_tcp, is_older("IPv4"), |_, _| true);
        drop_replaced_figures(&mut other.ruleset, &self.ruleset, is_older("ruleset"), |_, _| true);
        drop_replaced_figures(&mut other.rtt, &self.rtt, is_older("round-trip times"), |_, _| true);
        drop_replaced_figures(&mut other.cpu, &self.cpu, is_older("processor time"), |_, _| true);
        drop_replaced_figures(&mut other.handover, &self.handover, is_older("handovers"), |_, _| true);
        drop_replaced_figures(&mut other.bindings, &self.bindings, is_older("many bindings"), |_, _| true);
        drop_replaced_figures(&mut other.starts, &self.starts, is_older("many bindings"), |_, _| true);
        drop_replaced_figures(
            &mut other.registrations,
            &self.registrations,
            is_older("registrations"),
            |a, b| a.path == b.path,
        );
        drop_replaced_figures(&mut other.attacks, &self.attacks, is_older("attacks"), |a, b| {
            a.path == b.path
        });
        drop_replaced_figures(&mut other.sessions, &self.sessions, is_older("encrypted TCP"), |_, _| true);
        drop_replaced_figures(&mut other.handshakes, &self.handshakes, is_older("handshakes"), |_, _| true);
        drop_replaced_figures(
            &mut other.session_floods,
            &self.session_floods,
            is_older("floods of handshakes"),
            |_, _| true,
        );
        drop_replaced_figures(&mut other.takeovers, &self.takeovers, is_older("takeovers"), |a, b| {
            a.path == b.path
        });
        drop_replaced_figures(&mut other.faults, &self.faults, is_older("faults"), |a, b| a.path == b.path);
    }
}

/// Removes each figure from the new figures `others` that `here` already has, if `is_older` says that the new
/// figures are older.
fn drop_replaced_figures<T>(others: &mut Vec<T>, here: &[T], is_older: bool, same: impl Fn(&T, &T) -> bool) {
    others.retain(|other| !is_older || !here.iter().any(|figure| same(figure, other)));
}

/// Replaces the figures of each data path in `here` by the new figures `others` of the same path. Returns
/// whether `here` now has only new figures; `None` if `others` is empty.
fn replace_figures_of_paths<T>(
    here: &mut Vec<T>,
    others: Vec<T>,
    path: impl Fn(&T) -> DataPath,
) -> Option<bool> {
    if others.is_empty() {
        return None;
    }
    here.retain(|figure| !others.iter().any(|other| path(other) == path(figure)));
    let is_all = here.is_empty();
    here.extend(others);
    Some(is_all)
}

/// A data path of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathFigure {
    /// The data path.
    pub path: DataPath,
    /// Description of the path.
    #[serde(rename = "about")]
    pub description: String,
    /// Reason why the path was not measured; `None` if it was.
    #[serde(rename = "missing")]
    pub reason_not_measured: Option<String>,
}

/// Repeated measurements of one figure. Each repetition (round) ran together with a repetition of every
/// figure with which it is compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Median of the rounds.
    pub median: f64,
    /// Lowest value of the rounds.
    pub lowest: f64,
    /// Highest value of the rounds.
    pub highest: f64,
    /// Values of all rounds, in the order of measurement.
    pub rounds: Vec<f64>,
}

impl Series {
    /// Builds a series from the values of its rounds.
    pub fn of_rounds(rounds: Vec<f64>) -> Series {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Series {
            median: median(&sorted),
            lowest: sorted.first().copied().unwrap_or(0.0),
            highest: sorted.last().copied().unwrap_or(0.0),
            rounds,
        }
    }

    /// Returns for each round the ratio to the same round of another series. A drift from round to round
    /// cancels out.
    pub fn ratios_to(&self, base: &Series) -> Series {
        let pairs = self.rounds.iter().zip(&base.rounds).filter(|(_, base)| **base > 0.0);
        Series::of_rounds(pairs.map(|(one, base)| one / base).collect())
    }

    /// Returns the median of the ratios to another series. Returns `None` if the series have no round in
    /// common.
    pub fn ratio_to(&self, base: &Series) -> Option<f64> {
        let ratios = self.ratios_to(base);
        (!ratios.rounds.is_empty()).then_some(ratios.median)
    }

    /// Returns the limits between which the true median lies with a probability of 95 %, for any
    /// distribution. The limits are order statistics on both sides of the middle. `None` for fewer than six
    /// values: too few for this probability.
    pub fn confidence_limits(&self) -> Option<[f64; 2]> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        // Number of values to leave out at each end. It is the largest number n such that a fair coin shows
        // at most n heads with a probability below 2.5 %.
        let (mut left_out, mut chance, mut sum) = (0, 0.5_f64.powi(count as i32), 0.0);
        while left_out < count / 2 {
            sum += chance;
            if sum > 0.025 {
                break;
            }
            chance *= (count - left_out) as f64 / (left_out + 1) as f64;
            left_out += 1;
        }
        let first = left_out.checked_sub(1)?;
        Some([sorted[first], sorted[count - 1 - first]])
    }
}

/// Returns the median of sorted numbers: the mean of the two middle numbers if there is an even number of
/// them.
pub fn median(sorted: &[f64]) -> f64 {
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Load average per core above which a machine counts as busy. `BUSY_SHARE_OF_OTHERS` is the share of all
/// cores used by other programs above which it counts as busy, too.
const BUSY_LOAD_PER_CORE: f64 = 0.5;
const BUSY_SHARE_OF_OTHERS: f64 = 0.03;

/// Returns the reasons why figures are not reliable, in words. `load` is the load average before the run on
/// `cores` cores. `others` has the shares of all cores that other programs and a hypervisor's other guests
/// used.
pub fn describe_disturbances(cores: usize, load: f64, others: [f64; 2]) -> Vec<String> {
    let mut found = Vec::new();
    if load > BUSY_LOAD_PER_CORE * cores.max(1) as f64 {
        found.push(format!("the load was {load:.2} before, on {cores} cores"));
    }
    for (share, whose) in others.iter().zip(["other programs", "other guests of the hypervisor"]) {
        if *share > BUSY_SHARE_OF_OTHERS {
            found.push(format!("{whose} had {:.0} % of all cores", share * 100.0));
        }
    }
    found
}

impl BenchResults {
    /// Returns the reasons why the figures are not reliable, in words.
    pub fn disturbances(&self) -> Vec<String> {
        describe_disturbances(self.machine.cores, self.load_before[0], self.core_shares_of_others)
    }

    /// Returns the cost of the routers alone, in nanoseconds per packet. It subtracts the cost of source and
    /// sink at the same packet size, because they share the core with the routers. Returns `None` if the run
    /// has not measured this cost, or if the figure itself is this cost.
    pub fn nanoseconds_without_source_and_sink(&self, figure: &PacketFigure) -> Option<f64> {
        let alone =
            self.packets.iter().find(|one| one.is_source_and_sink_alone() && one.size == figure.size)?;
        (!figure.is_source_and_sink_alone()
            && alone.nanoseconds_per_packet > 0.0
            && figure.nanoseconds_per_packet > alone.nanoseconds_per_packet)
            .then_some(figure.nanoseconds_per_packet - alone.nanoseconds_per_packet)
    }

    /// Returns the ratio of the packets per second of the routers alone to those of plain routers, both
    /// without the cost of source and sink. Returns `None` if the run has not measured all of these figures.
    pub fn net_ratio_to_plain(&self, figure: &PacketFigure) -> Option<f64> {
        let plain = self.packets.iter().find(|one| {
            (one.path, &one.arrangement, one.size) == (DataPath::Plain, &figure.arrangement, figure.size)
        })?;
        Some(
            self.nanoseconds_without_source_and_sink(plain)?
                / self.nanoseconds_without_source_and_sink(figure)?,
        )
    }
}

/// Packets per second through a part of the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PacketFigure {
    /// Routers that the packets pass, and the direction.
    pub arrangement: String,
    /// Size of the inner packet in octets.
    pub size: usize,
    /// Data path.
    pub path: DataPath,
    /// Packets per second.
    pub rate: Series,
    /// Nanoseconds per packet, from the median rate.
    #[serde(rename = "ns")]
    pub nanoseconds_per_packet: f64,
    /// Packet rate relative to plain forwarding in the same part of the network; `None` without a measurement
    /// of plain forwarding, and for source and sink alone.
    #[serde(rename = "to_plain")]
    pub ratio_to_plain: Option<f64>,
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets lost.
    pub lost: u64,
    /// Number of packets that the TUN devices of both routers carried meanwhile.
    #[serde(default)]
    pub by_tun: u64,
}

impl PacketFigure {
    /// Whether the figure measures source and sink alone, without a router between them.
    fn is_source_and_sink_alone(&self) -> bool {
        self.arrangement == SOURCE_AND_SINK
    }
}

/// A TCP transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TcpFigure {
    /// The hosts' MTU, and whether they receive Packet Too Big.
    pub hosts: String,
    /// Number of parallel streams.
    pub streams: usize,
    /// Direction. `up`: from the mobile network; `down`: to the mobile network.
    pub direction: String,
    /// Data path.
    pub path: DataPath,
    /// Gbit/s of payload.
    pub gbit: Series,
    /// Ratio to plain forwarding: the median of the rounds' ratios. `None` if plain forwarding was not
    /// measured.
    #[serde(rename = "to_plain")]
    pub ratio_to_plain: Option<f64>,
    /// Limits between which the true median of the ratios to plain forwarding lies with a probability of 95
    /// %. `None` without a comparison, or with fewer than six rounds.
    #[serde(default, rename = "sure")]
    pub ratio_confidence_limits: Option<[f64; 2]>,
    /// Number of TCP segments that were retransmitted, in all rounds.
    pub retransmits: u64,
    /// Reason why a transfer did not finish; `None` if all did.
    pub error: Option<String>,
}

/// Round-trip times over one data path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RttFigure {
    /// Data path.
    pub path: DataPath,
    /// Number of echoes.
    pub count: usize,
    /// Median in microseconds.
    pub median_us: f64,
    /// 10th percentile in microseconds.
    pub p10_us: f64,
    /// 90th percentile in microseconds.
    pub p90_us: f64,
    /// Additional microseconds per direction, compared with plain forwarding: half the median of the
    /// differences between echoes of the same turn. `None` if plain forwarding was not measured.
    pub added_us: Option<f64>,
}

/// Processor time of a transfer at a fixed rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CpuFigure {
    /// Data path.
    pub path: DataPath,
    /// Direction: `up` or `down`.
    pub direction: String,
    /// Transferred Gbit/s.
    pub gbit: f64,
    /// Processor seconds of all cores per second and Gbit/s, for hosts, routers and the network.
    pub machine: Series,
    /// Processor seconds of the two carnet processes, a part of `machine`.
    pub carnet: f64,
}

/// Result of handovers while packets flow over one data path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoverFigure {
    /// Data path.
    pub path: DataPath,
    /// Direction: `up` or `down`.
    pub direction: String,
    /// Highest rate without loss, in packets per second.
    pub highest: f64,
    /// Packets per second during the handovers.
    pub rate: f64,
    /// Number of handovers.
    pub handovers: usize,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Packets lost, duplicated and reordered in a run without handovers.
    pub quiet: [u64; 3],
}

/// Packet rate of a home agent with many bindings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BindingsFigure {
    /// Data path.
    pub path: DataPath,
    /// Kind of traffic: `to one`, `to random ones`, `from one` or `from random ones`.
    #[serde(rename = "what")]
    pub packet_kind: String,
    /// Size of the inner packet in octets.
    pub size: usize,
    /// Number of bindings.
    pub bindings: u32,
    /// Packets per second.
    pub rate: Series,
    /// Ratio to the rate of a home agent with one binding; `None` if that was not measured.
    #[serde(rename = "to_one")]
    pub ratio_to_one_binding: Option<f64>,
    /// Packets lost.
    pub lost: u64,
}

/// The start of a home agent with many bindings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartFigure {
    /// Data path.
    pub path: DataPath,
    /// Number of bindings.
    pub bindings: u32,
    /// Seconds from the start of the home agent until its control socket accepts connections.
    pub ready_s: f64,
    /// Memory of the home agent after its start, in MiB.
    pub memory_mib: f64,
}

/// Result of many routers that register at one home agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegistrationsFigure {
    /// Data path.
    pub path: DataPath,
    /// Number of routers.
    pub routers: u32,
    /// Whether each router also registers an IPv4 prefix.
    #[serde(default)]
    pub has_ipv4: bool,
    /// Whether no other program of the benchmark ran on the home agent's core.
    #[serde(rename = "own_core")]
    pub agent_has_own_core: bool,
    /// Seconds from the start of the home agent, with no bindings, until its control socket accepts
    /// connections.
    pub start_s: f64,
    /// Seconds from the first Binding Update to the last acknowledgement when all routers register at once
    /// (the storm).
    pub seconds: f64,
    /// Registrations acknowledged per second.
    pub per_second: f64,
    /// Routers that were acknowledged.
    pub acknowledged: u64,
    /// Routers without an acknowledgement after all attempts.
    pub lost: u64,
    /// Number of acknowledgements whose MAC, checksum, status, sequence number, lifetime or destination is
    /// wrong.
    #[serde(rename = "wrong")]
    pub wrong_acknowledgements: u64,
    /// Number of Binding Updates that a router had to retransmit.
    #[serde(rename = "again")]
    pub repeated_updates: u64,
    /// Processor time of the home agent while all routers register at once, in seconds.
    #[serde(rename = "agent_s")]
    pub agent_processor_seconds: f64,
    /// Maximum time that a router waited for its acknowledgement, in milliseconds.
    pub longest_ms: f64,
    /// Memory of the home agent before all routers register at once, in MiB.
    pub memory_before_mib: f64,
    /// Memory of the home agent after all routers have registered at once, in MiB.
    pub memory_mib: f64,
    /// Memory of the home agent after all routers have renewed their registrations, in MiB.
    pub memory_refreshed_mib: f64,
    /// Additional octets of memory per binding.
    #[serde(rename = "octets_each")]
    pub octets_per_binding: f64,
    /// Result of the renewals that follow the registration of all routers at once.
    pub refresh: RefreshFigure,
    /// Seconds from the home agent's restart after `kill -9` until its control socket accepts connections.
    pub restart_s: f64,
    /// Acknowledged bindings that the restarted home agent does not have, or has in an older state.
    #[serde(rename = "missing")]
    pub missing_bindings: u64,
}

/// Result of a round in which all routers renew their registrations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RefreshFigure {
    /// Duration of the renewals in seconds.
    pub seconds: f64,
    /// Renewals acknowledged.
    pub acknowledged: u64,
    /// Renewals that were not acknowledged.
    pub lost: u64,
    /// Wrong acknowledgements, as in [`RegistrationsFigure::wrong_acknowledgements`].
    #[serde(rename = "wrong")]
    pub wrong_acknowledgements: u64,
    /// Processor time of the home agent during the renewals, in seconds.
    #[serde(rename = "agent_s")]
    pub agent_processor_seconds: f64,
    /// Maximum time that a router waited for its acknowledgement, in milliseconds.
    pub longest_ms: f64,
    /// Share of a core that the renewals of all routers would need if each router renewed after 45 s.
    #[serde(rename = "share")]
    pub agent_core_share: f64,
}

/// Result of a flood against a home agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttackFigure {
    /// Data path.
    pub path: DataPath,
    /// Kind of the flood.
    pub kind: String,
    /// Frames per second of the flood that the sender really sent.
    #[serde(rename = "frames")]
    pub attack_frames_per_second: f64,
    /// Routers that renewed during the flood.
    pub routers: u32,
    /// Routers that were acknowledged.
    pub acknowledged: u64,
    /// Acknowledged routers that waited longer than a second.
    #[serde(rename = "late")]
    pub late_routers: u64,
    /// Routers without an acknowledgement after all attempts.
    pub lost: u64,
    /// Wrong acknowledgements, as in [`RegistrationsFigure::wrong_acknowledgements`].
    #[serde(rename = "wrong")]
    pub wrong: u64,
    /// Number of Binding Updates that a router had to retransmit.
    #[serde(rename = "again")]
    pub repeated_updates: u64,
    /// Longest time that a router waited for its acknowledgement, in milliseconds.
    pub longest_ms: f64,
    /// Packets per second of the stream.
    pub rate: f64,
    /// Packets of the stream in total.
    pub packets: u64,
    /// Packets of the stream that were lost.
    pub packets_lost: u64,
    /// Share of the time in which the home agent's process ran on a core.
    #[serde(rename = "agent")]
    pub agent_core_share: f64,
}

/// A TCP transfer through an encrypted tunnel, or through a tunnel with which the benchmark compares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionSpeedFigure {
    /// The tunnel.
    pub lane: SessionLane,
    /// Direction. `up`: from the mobile network; `down`: to the mobile network.
    pub direction: String,
    /// Whether each end had a core of its own.
    #[serde(rename = "own_cores")]
    pub ends_have_own_cores: bool,
    /// Gbit/s of payload.
    pub gbit: Series,
    /// Ratio to plain forwarding: the median of the rounds' ratios.
    #[serde(rename = "to_plain")]
    pub ratio_to_plain: Option<f64>,
    /// Ratio to the library alone with the same outer header: the median of the rounds' ratios.
    #[serde(rename = "to_library")]
    pub ratio_to_library: Option<f64>,
    /// Limits between which the true median of the ratios to the library lies with a probability of 95 %.
    #[serde(rename = "sure")]
    pub library_confidence_limits: Option<[f64; 2]>,
    /// Number of TCP segments that were retransmitted, in all rounds.
    pub retransmits: u64,
    /// Reason why a transfer did not finish; `None` if all did.
    pub error: Option<String>,
}

/// Result of many routers with sessions at one home agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandshakesFigure {
    /// Number of routers.
    pub routers: u32,
    /// Whether no other program of the benchmark ran on the home agent's core.
    #[serde(rename = "own_core")]
    pub agent_has_own_core: bool,
    /// Seconds from the start of the home agent until its socket accepts connections.
    pub start_s: f64,
    /// Seconds until all routers have a session, if all begin at once.
    pub sessions_s: f64,
    /// Routers without a session at the end.
    pub sessions_lost: u64,
    /// Initiations that the routers sent for these sessions.
    pub initiations: u64,
    /// Cookie replies that the routers received for these sessions.
    pub cookie_replies: u64,
    /// Processor time of the home agent for these sessions, in seconds.
    #[serde(rename = "sessions_agent_s")]
    pub sessions_agent_processor_seconds: f64,
    /// Seconds until all routers have registered through their sessions, if all begin at once.
    pub registrations_s: f64,
    /// Routers without an acknowledgement at the end.
    pub registrations_lost: u64,
    /// Acknowledgements that failed a check.
    pub wrong: u64,
    /// Memory of the home agent before the first session, in MiB.
    pub memory_before_mib: f64,
    /// Memory of the home agent with all sessions and bindings, in MiB.
    pub memory_mib: f64,
    /// Memory of the restarted home agent with all sessions and bindings, in MiB.
    pub memory_after_cut_mib: f64,
    /// Additional octets of memory per session.
    #[serde(rename = "octets_each")]
    pub octets_per_session: f64,
    /// Additional octets of memory per binding.
    #[serde(rename = "octets_each_binding")]
    pub octets_per_binding: f64,
    /// Result of a round in which all routers renew their registrations.
    pub refresh: RefreshFigure,
    /// Result of a round in which all routers renew their sessions. The share is for a period of 120 s.
    pub renewal: RefreshFigure,
    /// Seconds from the home agent's restart after `kill -9` until its socket accepts connections.
    pub restart_s: f64,
    /// Seconds from `kill -9` of the home agent until all routers have new sessions and are registered.
    pub power_cut_s: f64,
    /// Routers that were not registered again.
    pub power_cut_lost: u64,
    /// Longest time that a router needed after the power cut, in seconds.
    pub power_cut_longest_s: f64,
    /// Processor time of the restarted home agent until all routers are registered, in seconds.
    #[serde(rename = "power_cut_agent_s")]
    pub power_cut_agent_processor_seconds: f64,
}

/// Result of a flood of handshakes against a home agent's tunnel port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionFloodFigure {
    /// Kind of the flood.
    pub kind: String,
    /// Number of initiations that the attacker sent.
    #[serde(rename = "sent")]
    pub attack_frames: u64,
    /// Initiations per second.
    #[serde(rename = "frames")]
    pub attack_frames_per_second: f64,
    /// Routers that opened a session and registered during the flood.
    pub routers: u32,
    /// Routers that were acknowledged.
    pub registered: u64,
    /// Acknowledged routers that needed longer than a second.
    #[serde(rename = "late")]
    pub late_routers: u64,
    /// Routers that were not acknowledged.
    #[serde(rename = "lost")]
    pub lost_routers: u64,
    /// Acknowledgements that failed a check.
    pub wrong: u64,
    /// Longest time that a router needed, in milliseconds.
    pub longest_ms: f64,
    /// Cookie replies of the home agent to the flood.
    pub cookie_replies: u64,
    /// All other packets of the home agent to the sources of the flood.
    pub answers: u64,
    /// Packets of the streams: from the mobile network, and to it.
    pub packets: [u64; 2],
    /// Packets of the streams that were lost.
    pub packets_lost: [u64; 2],
    /// Share of the time in which the home agent's process ran on a core.
    #[serde(rename = "agent")]
    pub agent_core_share: f64,
}

/// Result of killing each of several machines that serve as home agents together, one after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeoverFigure {
    /// Data path.
    pub path: DataPath,
    /// Number of routers.
    pub routers: u32,
    /// Number of home agents.
    pub seats: usize,
    /// Number of etcd servers.
    pub stores: usize,
    /// Packets per second of all flows together.
    pub packets: f64,
    /// Time between two packets of a flow, in milliseconds. A measured silence cannot be shorter.
    pub period_ms: f64,
    /// Number of times that a machine was killed.
    pub kills: usize,
    /// Number of flows through machines that were killed.
    pub flows: u64,
    /// Number of flows through killed machines that were silent for at most a second.
    pub within_1s: u64,
    /// Number of flows through killed machines that were silent for at most two seconds.
    pub within_2s: u64,
    /// Median silence of the flows through killed machines, in milliseconds.
    pub median_ms: f64,
    /// 99th percentile of the silences of flows through killed machines, in milliseconds.
    pub p99_ms: f64,
    /// Longest silence of a flow through a killed machine, in milliseconds.
    pub longest_ms: f64,
    /// Longest silence of flows through machines that were not killed, in milliseconds.
    #[serde(rename = "others_ms")]
    pub longest_outage_of_other_seats_ms: f64,
    /// Longest silence of a flow in milliseconds, when the restarted machine becomes leader of its home agent
    /// again.
    pub back_ms: f64,
    /// Number of acknowledged bindings that the next leader does not have.
    #[serde(rename = "missing")]
    pub missing_bindings: u64,
    /// Number of times that two machines acknowledged for one home agent at once.
    #[serde(rename = "two")]
    pub acknowledgements_of_two_members: u64,
    /// Acknowledgements that failed a check.
    #[serde(rename = "wrong")]
    pub wrong_acknowledgements: u64,
}

/// Result of a series of faults at several machines that serve as home agents together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultsFigure {
    /// Data path.
    pub path: DataPath,
    /// Seed of the series of faults.
    pub seed: u64,
    /// Number of routers.
    pub routers: u32,
    /// Number of home agents.
    pub seats: usize,
    /// Number of etcd servers.
    pub stores: usize,
    /// Number of faults.
    pub faults: u32,
    /// Kinds of faults, each with its number.
    pub kinds: Vec<(String, u64)>,
    /// Number of acknowledgements.
    pub acknowledged: u64,
    /// Number of acknowledgements that a former leader sent late: after the new leader's first
    /// acknowledgement, but for Binding Updates from before it.
    #[serde(rename = "late")]
    pub late_acknowledgements: u64,
    /// Number of times that two machines acknowledged for one home agent at once.
    #[serde(rename = "two")]
    pub two: u64,
    /// Acknowledgements that failed a check.
    #[serde(rename = "wrong")]
    pub wrong: u64,
    /// Number of times that another machine began to acknowledge for a home agent.
    pub changes: u64,
    /// Number of takeovers in the logs of the machines; at least `changes`.
    #[serde(rename = "taken")]
    pub takeovers_in_logs: u64,
    /// Acknowledged bindings that the leader did not have after a fault.
    pub lost: u64,
    /// Number of faults after which a check still failed after 30 s.
    #[serde(rename = "broken")]
    pub faults_without_recovery: u64,
    /// Packets of all flows.
    pub packets: u64,
    /// Number of packets that two machines forwarded. (The sender sends each packet to all machines.)
    pub doubled: u64,
    /// Longest time from a fault to a packet that two machines forwarded, in milliseconds.
    pub doubled_ms: f64,
    /// Longest silence of a flow in milliseconds, including the time that the fault lasted.
    pub longest_ms: f64,
}

/// A performance target, and whether the run meets it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PerformanceTarget {
    /// The measured quantity.
    #[serde(rename = "what")]
    pub quantity: String,
    /// Target value, in words.
    #[serde(rename = "aim")]
    pub target_value: String,
    /// Measured value, in words.
    #[serde(rename = "found")]
    pub measured_value: String,
    /// Whether the measured value meets the target; `None` if the run did not measure it.
    #[serde(rename = "met")]
    pub is_met: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_the_ratios_of_rounds() {
        let base = Series::of_rounds(vec![1.0, 2.0, 4.0]);
        let other = Series::of_rounds(vec![2.0, 4.0, 8.0, 100.0]);
        assert_eq!(other.ratio_to(&base), Some(2.0));
        assert_eq!((other.median, other.lowest, other.highest), (6.0, 2.0, 100.0));
        assert_eq!(other.ratio_to(&Series::of_rounds(vec![0.0])), None);
        assert_eq!(Series::of_rounds(Vec::new()).median, 0.0);
    }

    #[test]
    fn median_of_few_rounds_has_a_wide_interval() {
        let of = |count: u32| Series::of_rounds((1..=count).map(f64::from).collect()).confidence_limits();
        // By the tables of the sign test at 5 %, these numbers of values leave out none, 0, 1, 3 and 6 values
        // at each end.
        assert_eq!(of(5), None);
        assert_eq!(of(6), Some([1.0, 6.0]));
        assert_eq!(of(9), Some([2.0, 8.0]));
        assert_eq!(of(15), Some([4.0, 12.0]));
        assert_eq!(of(25), Some([8.0, 18.0]));
    }

    #[test]
    fn report_names_disturbance_by_other_programs() {
        let mut bench = BenchResults {
            load_before: [0.9, 0.0, 0.0],
            core_shares_of_others: [0.02, 0.0],
            ..BenchResults::default()
        };
        bench.machine.cores = 2;
        assert_eq!(bench.disturbances(), Vec::<String>::new());
        bench.load_before[0] = 1.2;
        bench.core_shares_of_others = [0.1, 0.25];
        let told = bench.disturbances().join("; ");
        assert_eq!(
            told,
            "the load was 1.20 before, on 2 cores; other programs had 10 % of all cores; other guests of the \
             hypervisor had 25 % of all cores"
        );
    }

    fn attack_figure(path: DataPath) -> AttackFigure {
        let kind = String::new();
        AttackFigure {
            path,
            kind,
            attack_frames_per_second: 0.0,
            routers: 0,
            acknowledged: 0,
            late_routers: 0,
            lost: 0,
            wrong: 0,
            repeated_updates: 0,
            longest_ms: 0.0,
            packets: 0,
            packets_lost: 0,
            rate: 0.0,
            agent_core_share: 0.0,
        }
    }

    /// The results name another run as long as they have a figure of that run.
    #[test]
    fn report_keeps_figures_of_earlier_runs_until_replaced() {
        let run = |time: &str, paths: &[DataPath]| BenchResults {
            time: time.into(),
            attacks: paths.iter().copied().map(attack_figure).collect(),
            ..BenchResults::default()
        };
        let mut bench = BenchResults::default();
        let told = |bench: &BenchResults| -> Vec<String> {
            bench
                .runs_of_others
                .iter()
                .map(|run| run.split(", ").next().unwrap_or_default().to_owned())
                .collect()
        };
        bench.merge(run("first", &[DataPath::Bpf, DataPath::Tun]));
        bench.merge(run("first", &[DataPath::Bpf, DataPath::Tun]));
        assert_eq!(told(&bench), ["attacks: first"]);
        bench.merge(run("second", &[DataPath::Tun]));
        assert_eq!(told(&bench), ["attacks: first", "attacks: second"]);
        bench.merge(run("third", &[DataPath::Tun, DataPath::Bpf]));
        assert_eq!((told(&bench), bench.attacks.len()), (vec!["attacks: third".to_owned()], 2));
        // Older results do not replace newer ones. A path without results gets the results of the older run.
        bench.merge(run("second", &[DataPath::Tun]));
        assert_eq!((told(&bench), bench.attacks.len()), (vec!["attacks: third".to_owned()], 2));
        bench.merge(run("second", &[DataPath::Tun, DataPath::Xdp]));
        assert_eq!(told(&bench), ["attacks: third", "attacks: second"]);
        assert_eq!(bench.attacks.len(), 3);
    }
}
