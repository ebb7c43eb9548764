//! Results of the benchmark, as in `bench.json`.

use serde::{Deserialize, Serialize};

use super::packets::SOURCE_AND_SINK;
use super::path::Path;
use crate::machine::Machine;

/// `bench.json`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Bench {
    /// The machine.
    pub machine: Machine,
    /// When it began.
    pub time: String,
    /// Load averages of the machine before.
    pub load_before: [f64; 3],
    /// Shares of all cores that other programs, and a hypervisor's other guests, had during the run.
    #[serde(default)]
    pub others: [f64; 2],
    /// Why the figures are not to be relied on: the machine was busy. Empty where it was not.
    #[serde(default)]
    pub disturbed: Vec<String>,
    /// Whether it was `--quick`.
    pub quick: bool,
    /// The core on which packets were measured.
    pub core: usize,
    /// Most packets under way.
    pub window: u64,
    /// Seconds that it took.
    pub duration_s: f64,
    /// The ways compared.
    pub paths: Vec<PathFigure>,
    /// Packets per second.
    pub packets: Vec<PacketFigure>,
    /// TCP.
    pub tcp: Vec<TcpFigure>,
    /// Round-trip times.
    pub rtt: Vec<RttFigure>,
    /// Processor time.
    pub cpu: Vec<CpuFigure>,
    /// Handovers under load.
    pub handover: Vec<HandoverFigure>,
    /// Many bindings.
    pub bindings: Vec<BindingsFigure>,
    /// Starts of a home agent with many bindings.
    pub starts: Vec<StartFigure>,
    /// Many routers that register.
    #[serde(default)]
    pub registrations: Vec<RegistrationsFigure>,
    /// A home agent under attack.
    #[serde(default)]
    pub attacks: Vec<AttackFigure>,
    /// Machines that are home agents together, one of which dies.
    #[serde(default)]
    pub takeovers: Vec<TakeoverFigure>,
    /// The same in a series of faults.
    #[serde(default)]
    pub faults: Vec<FaultsFigure>,
    /// How the targets fare.
    pub targets: Vec<Target>,
    /// Of which other runs figures are among these, and which.
    #[serde(default)]
    pub others_runs: Vec<String>,
}

impl Bench {
    /// Replaces results by those of another run. Paths that were compared in one run are replaced together,
    /// other results path by path. Results that were measured later stay.
    pub fn take(&mut self, mut other: Bench) {
        self.leave_out_what_is_older(&mut other);
        let mut taken = Vec::new();
        // Of which nothing is left that was here before.
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
        for (what, put) in [
            ("registrations", put(&mut self.registrations, other.registrations, |figure| figure.path)),
            ("attacks", put(&mut self.attacks, other.attacks, |figure| figure.path)),
            ("takeovers", put(&mut self.takeovers, other.takeovers, |figure| figure.path)),
            ("faults", put(&mut self.faults, other.faults, |figure| figure.path)),
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
        self.others_runs.retain(|known| {
            let kinds = known.split_once(": ").map_or("", |(kinds, _)| kinds);
            *known != run && !kinds.split(", ").all(|kind| replaced.contains(&kind))
        });
        self.others_runs.push(run);
    }

    /// When the last of these figures was measured.
    fn time_of(&self, kind: &str) -> &str {
        let runs = self.others_runs.iter().filter_map(|run| run.split_once(": "));
        let times = runs.filter(|(kinds, _)| kinds.split(", ").any(|it| it == kind));
        // "2026-11-26 02:34:35 UTC, carnet ...": the order of these is that of time.
        times.filter_map(|(_, rest)| rest.split(',').next()).max().unwrap_or(&self.time)
    }

    fn leave_out_what_is_older(&self, other: &mut Bench) {
        let time = other.time.clone();
        let is_older = |kind: &str| time.as_str() < self.time_of(kind);
        leave_out(&mut other.packets, &self.packets, is_older("packets per second"), |_, _| true);
        leave_out(&mut other.tcp, &self.tcp, is_older("TCP"), |_, _| true);
        leave_out(&mut other.rtt, &self.rtt, is_older("round-trip times"), |_, _| true);
        leave_out(&mut other.cpu, &self.cpu, is_older("processor time"), |_, _| true);
        leave_out(&mut other.handover, &self.handover, is_older("handovers"), |_, _| true);
        leave_out(&mut other.bindings, &self.bindings, is_older("many bindings"), |_, _| true);
        leave_out(&mut other.starts, &self.starts, is_older("many bindings"), |_, _| true);
        leave_out(&mut other.registrations, &self.registrations, is_older("registrations"), |a, b| {
            a.path == b.path
        });
        leave_out(&mut other.attacks, &self.attacks, is_older("attacks"), |a, b| a.path == b.path);
        leave_out(&mut other.takeovers, &self.takeovers, is_older("takeovers"), |a, b| a.path == b.path);
        leave_out(&mut other.faults, &self.faults, is_older("faults"), |a, b| a.path == b.path);
    }
}

/// Leaves out of `others` what is here already, if it is older.
fn leave_out<T>(others: &mut Vec<T>, here: &[T], is_older: bool, same: impl Fn(&T, &T) -> bool) {
    others.retain(|other| !is_older || !here.iter().any(|figure| same(figure, other)));
}

/// Replaces figures by those of the same path; true if all figures are new ones afterwards. `None` without
/// new figures.
fn put<T>(here: &mut Vec<T>, others: Vec<T>, path: impl Fn(&T) -> Path) -> Option<bool> {
    if others.is_empty() {
        return None;
    }
    here.retain(|figure| !others.iter().any(|other| path(other) == path(figure)));
    let is_all = here.is_empty();
    here.extend(others);
    Some(is_all)
}

/// A way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathFigure {
    /// Which.
    pub path: Path,
    /// Description of the path.
    pub about: String,
    /// Why it is not measured, if so.
    pub missing: Option<String>,
}

/// A figure that was taken several times, each time together with those that it is compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
    /// All, in order.
    pub rounds: Vec<f64>,
}

impl Series {
    /// Of these.
    pub fn of(rounds: Vec<f64>) -> Series {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Series {
            median: median(&sorted),
            lowest: sorted.first().copied().unwrap_or(0.0),
            highest: sorted.last().copied().unwrap_or(0.0),
            rounds,
        }
    }

    /// The ratios to another, round by round: what drifts from round to round falls out.
    pub fn ratios(&self, base: &Series) -> Series {
        let pairs = self.rounds.iter().zip(&base.rounds).filter(|(_, base)| **base > 0.0);
        Series::of(pairs.map(|(one, base)| one / base).collect())
    }

    /// The median of these.
    pub fn ratio(&self, base: &Series) -> Option<f64> {
        let ratios = self.ratios(base);
        (!ratios.rounds.is_empty()).then_some(ratios.median)
    }

    /// Between which two the true median lies with a probability of 95 %, whatever the distribution: the
    /// order statistics to both sides of the middle. `None` for fewer than six, of which even all do not say
    /// as much.
    pub fn sure(&self) -> Option<[f64; 2]> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        // How many are left out at each end: as many as a fair coin shows heads in fewer than 2.5 % of cases.
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

/// The middle one of sorted numbers, the mean of the two middle ones where their number is even.
pub fn median(sorted: &[f64]) -> f64 {
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Above which load average for each core, and which share of all cores in others' hands, a machine is busy.
const BUSY_LOAD: f64 = 0.5;
const BUSY_SHARE: f64 = 0.03;

/// Returns the reasons why figures are not reliable, in words. `load` is the load before the run on `cores`
/// cores. `others` has the shares of all cores that other programs and a hypervisor's other guests had.
pub fn disturbances(cores: usize, load: f64, others: [f64; 2]) -> Vec<String> {
    let mut found = Vec::new();
    if load > BUSY_LOAD * cores.max(1) as f64 {
        found.push(format!("the load was {load:.2} before, on {cores} cores"));
    }
    for (share, whose) in others.iter().zip(["other programs", "other guests of the hypervisor"]) {
        if *share > BUSY_SHARE {
            found.push(format!("{whose} had {:.0} % of all cores", share * 100.0));
        }
    }
    found
}

impl Bench {
    /// Why the figures are not to be relied on, in words.
    pub fn disturbances(&self) -> Vec<String> {
        disturbances(self.machine.cores, self.load_before[0], self.others)
    }

    /// Returns the cost of the routers alone, in nanoseconds for a packet. It subtracts the cost of source
    /// and sink at that size, which share the core. `None` if that was not measured, or if the figure is that
    /// cost.
    pub fn net_ns(&self, figure: &PacketFigure) -> Option<f64> {
        let alone = self.packets.iter().find(|one| one.is_alone() && one.size == figure.size)?;
        (!figure.is_alone() && alone.ns > 0.0 && figure.ns > alone.ns).then_some(figure.ns - alone.ns)
    }

    /// How many times as many packets the routers alone pass as plain ones do, both without source and sink.
    pub fn net_to_plain(&self, figure: &PacketFigure) -> Option<f64> {
        let plain = self.packets.iter().find(|one| {
            (one.path, &one.arrangement, one.size) == (Path::Plain, &figure.arrangement, figure.size)
        })?;
        Some(self.net_ns(plain)? / self.net_ns(figure)?)
    }
}

/// Packets per second through a part of the network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PacketFigure {
    /// Which part, and which way.
    pub arrangement: String,
    /// Octets of the inner packet.
    pub size: usize,
    /// The way.
    pub path: Path,
    /// Packets per second.
    pub rate: Series,
    /// Nanoseconds for a packet, of the median.
    pub ns: f64,
    /// Ratio to plain forwarding in the same part of the network.
    pub to_plain: Option<f64>,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
}

impl PacketFigure {
    /// Whether it is about source and sink, without any router between them.
    fn is_alone(&self) -> bool {
        self.arrangement == SOURCE_AND_SINK
    }
}

/// A TCP transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TcpFigure {
    /// The hosts' MTU and what else is special.
    pub hosts: String,
    /// Streams.
    pub streams: usize,
    /// `up`: from the mobile network; `down`: to it.
    pub direction: String,
    /// The way.
    pub path: Path,
    /// Gbit/s of payload.
    pub gbit: Series,
    /// Ratio to plain forwarding: the median of the rounds' ratios.
    pub to_plain: Option<f64>,
    /// Between which two the true median of these lies with a probability of 95 %.
    #[serde(default)]
    pub sure: Option<[f64; 2]>,
    /// Segments sent again, in all.
    pub retransmits: u64,
    /// Why a transfer did not come to its end, if so.
    pub error: Option<String>,
}

/// Round-trip times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RttFigure {
    /// The way.
    pub path: Path,
    /// Echoes.
    pub count: usize,
    /// Median in microseconds.
    pub median_us: f64,
    /// 10th percentile.
    pub p10_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// More than plain, for each direction: half the median of the differences between neighbouring echoes.
    pub added_us: Option<f64>,
}

/// Processor time of a transfer at a fixed rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CpuFigure {
    /// The way.
    pub path: Path,
    /// `up` or `down`.
    pub direction: String,
    /// Gbit/s that were transferred.
    pub gbit: f64,
    /// Seconds of all cores for each second and Gbit/s: hosts, routers and all.
    pub machine: Series,
    /// Of these, what the two carnet processes ran.
    pub carnet: f64,
}

/// Handovers under load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandoverFigure {
    /// The way.
    pub path: Path,
    /// `up` or `down`.
    pub direction: String,
    /// The highest rate without loss, in packets per second.
    pub highest: f64,
    /// Packets per second during the handovers.
    pub rate: f64,
    /// Handovers.
    pub handovers: usize,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets that came after a later one.
    pub reordered: u64,
    /// The same without handovers: lost, duplicated, reordered.
    pub quiet: [u64; 3],
}

/// A home agent with many bindings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BindingsFigure {
    /// The way.
    pub path: Path,
    /// `to one`, `to random ones`, `from one`, `from random ones`.
    pub what: String,
    /// Octets of the inner packet.
    pub size: usize,
    /// Bindings.
    pub bindings: u32,
    /// Packets per second.
    pub rate: Series,
    /// Ratio to the same with one binding.
    pub to_one: Option<f64>,
    /// Packets lost.
    pub lost: u64,
}

/// The start of a home agent with many bindings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartFigure {
    /// The way.
    pub path: Path,
    /// Bindings.
    pub bindings: u32,
    /// Seconds from the start of the program until its socket accepts.
    pub ready_s: f64,
    /// Memory of the program then, in MiB.
    pub memory_mib: f64,
}

/// Many routers that register at one home agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegistrationsFigure {
    /// The way.
    pub path: Path,
    /// Routers.
    pub routers: u32,
    /// Whether the home agent had a core of its own.
    pub own_core: bool,
    /// Seconds from the start of the program until its socket accepts, without bindings.
    pub start_s: f64,
    /// Seconds from the first Binding Update of the storm to the last acknowledgement.
    pub seconds: f64,
    /// Registrations acknowledged per second.
    pub per_second: f64,
    /// Routers that were acknowledged.
    pub acknowledged: u64,
    /// Routers that were not, however often they asked.
    pub lost: u64,
    /// Acknowledgements with another MAC, checksum, status, number, lifetime or destination than expected.
    pub wrong: u64,
    /// Updates that were sent once more.
    pub again: u64,
    /// Seconds that the home agent ran in the storm.
    pub agent_s: f64,
    /// The longest that a router waited, in milliseconds.
    pub longest_ms: f64,
    /// Memory of the home agent before the storm, in MiB.
    pub memory_before_mib: f64,
    /// Memory of the home agent after the storm, in MiB.
    pub memory_mib: f64,
    /// Memory of the home agent after the refreshes, in MiB.
    pub memory_refreshed_mib: f64,
    /// Octets more for each binding.
    pub octets_each: f64,
    /// Refreshes.
    pub refresh: RefreshFigure,
    /// Seconds from a start after `kill -9` until the socket accepts.
    pub restart_s: f64,
    /// Acknowledged bindings that are then not there, or older.
    pub missing: u64,
}

/// Routers that renew their registrations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RefreshFigure {
    /// Seconds that it took.
    pub seconds: f64,
    /// Renewals acknowledged.
    pub acknowledged: u64,
    /// Renewals that were not.
    pub lost: u64,
    /// As in [`RegistrationsFigure::wrong`].
    pub wrong: u64,
    /// Seconds that the home agent ran.
    pub agent_s: f64,
    /// The longest that a router waited, in milliseconds.
    pub longest_ms: f64,
    /// Share of a core that all routers take with a lifetime of 60 s, renewed after 45 s.
    pub share: f64,
}

/// A home agent under attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttackFigure {
    /// The way.
    pub path: Path,
    /// Kind of the flood.
    pub kind: String,
    /// Frames of that in a second that really left.
    pub frames: f64,
    /// Routers that renewed meanwhile.
    pub routers: u32,
    /// Those that were acknowledged.
    pub acknowledged: u64,
    /// Those of them that waited longer than a second.
    pub late: u64,
    /// Those that were not, however often they asked.
    pub lost: u64,
    /// As in [`RegistrationsFigure::wrong`].
    pub wrong: u64,
    /// Updates that were sent once more.
    pub again: u64,
    /// The longest that a router waited, in milliseconds.
    pub longest_ms: f64,
    /// Packets of the stream in a second.
    pub rate: f64,
    /// Packets of the stream.
    pub packets: u64,
    /// Those that did not come.
    pub packets_lost: u64,
    /// Share of a core that the home agent ran.
    pub agent: f64,
}

/// Machines that are home agents together, each of which is killed in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeoverFigure {
    /// The way.
    pub path: Path,
    /// Routers.
    pub routers: u32,
    /// Home agents.
    pub seats: usize,
    /// Servers of etcd.
    pub stores: usize,
    /// Packets of all flows in a second.
    pub packets: f64,
    /// Between two packets of a flow, in milliseconds: no silence is shorter.
    pub period_ms: f64,
    /// How often a machine was killed.
    pub kills: usize,
    /// Flows through machines that were killed.
    pub flows: u64,
    /// Those of them that were silent for no longer than a second.
    pub within_1s: u64,
    /// And than two.
    pub within_2s: u64,
    /// The median of their silences, in milliseconds.
    pub median_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// The longest of flows through other machines.
    pub others_ms: f64,
    /// The longest when the machine gets its home agent back.
    pub back_ms: f64,
    /// Acknowledged bindings that the next machine does not have.
    pub missing: u64,
    /// How often two machines acknowledged for a home agent at a time.
    pub two: u64,
    /// Acknowledgements that were not as they have to be.
    pub wrong: u64,
}

/// Machines that are home agents together, in a series of faults.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultsFigure {
    /// The way.
    pub path: Path,
    /// Out of which the series is.
    pub seed: u64,
    /// Routers.
    pub routers: u32,
    /// Home agents.
    pub seats: usize,
    /// Servers of etcd.
    pub stores: usize,
    /// Faults.
    pub faults: u32,
    /// Their kinds, and how many of each.
    pub kinds: Vec<(String, u64)>,
    /// Acknowledgements.
    pub acknowledged: u64,
    /// Those that came from a former home agent, of updates that were sent before another acknowledged.
    pub late: u64,
    /// How often two machines acknowledged for a home agent at a time.
    pub two: u64,
    /// Acknowledgements that were not as they have to be.
    pub wrong: u64,
    /// How often another machine began to acknowledge for a home agent.
    pub changes: u64,
    /// How often a machine took a home agent's place, as they say; as often or more.
    pub taken: u64,
    /// Acknowledged bindings that were not there after a fault.
    pub lost: u64,
    /// Faults after which not all was well within half a minute.
    pub broken: u64,
    /// Packets of all flows.
    pub packets: u64,
    /// Those that two machines forwarded, to both of which they were sent.
    pub doubled: u64,
    /// The longest from a fault to such a packet, in milliseconds.
    pub doubled_ms: f64,
    /// The longest silence of a flow, with the time that the fault lasted.
    pub longest_ms: f64,
}

/// A target, and whether it is met.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    /// What.
    pub what: String,
    /// Target, in words.
    pub aim: String,
    /// Measured value, in words.
    pub found: String,
    /// `None` when it was not measured.
    pub met: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_the_rounds_not_of_the_medians() {
        let base = Series::of(vec![1.0, 2.0, 4.0]);
        let other = Series::of(vec![2.0, 4.0, 8.0, 100.0]);
        assert_eq!(other.ratio(&base), Some(2.0));
        assert_eq!((other.median, other.lowest, other.highest), (6.0, 2.0, 100.0));
        assert_eq!(other.ratio(&Series::of(vec![0.0])), None);
        assert_eq!(Series::of(Vec::new()).median, 0.0);
    }

    #[test]
    fn the_median_of_a_few_is_uncertain() {
        let of = |count: u32| Series::of((1..=count).map(f64::from).collect()).sure();
        // The tables for the sign test at 5 %: none, 0, 1, 3 and 6 may be left out at each end.
        assert_eq!(of(5), None);
        assert_eq!(of(6), Some([1.0, 6.0]));
        assert_eq!(of(9), Some([2.0, 8.0]));
        assert_eq!(of(15), Some([4.0, 12.0]));
        assert_eq!(of(25), Some([8.0, 18.0]));
    }

    #[test]
    fn a_busy_machine_is_told() {
        let mut bench = Bench { load_before: [0.9, 0.0, 0.0], others: [0.02, 0.0], ..Bench::default() };
        bench.machine.cores = 2;
        assert_eq!(bench.disturbances(), Vec::<String>::new());
        bench.load_before[0] = 1.2;
        bench.others = [0.1, 0.25];
        let told = bench.disturbances().join("; ");
        assert_eq!(
            told,
            "the load was 1.20 before, on 2 cores; other programs had 10 % of all cores; other guests of the \
             hypervisor had 25 % of all cores"
        );
    }

    fn attack(path: Path) -> AttackFigure {
        let kind = String::new();
        AttackFigure {
            path,
            kind,
            frames: 0.0,
            routers: 0,
            acknowledged: 0,
            late: 0,
            lost: 0,
            wrong: 0,
            again: 0,
            longest_ms: 0.0,
            packets: 0,
            packets_lost: 0,
            rate: 0.0,
            agent: 0.0,
        }
    }

    /// A run is told of as long as any of its figures is there.
    #[test]
    fn other_runs_are_told_of_as_long_as_something_of_them_is_there() {
        let run = |time: &str, paths: &[Path]| Bench {
            time: time.into(),
            attacks: paths.iter().copied().map(attack).collect(),
            ..Bench::default()
        };
        let mut bench = Bench::default();
        let told = |bench: &Bench| -> Vec<String> {
            bench
                .others_runs
                .iter()
                .map(|run| run.split(", ").next().unwrap_or_default().to_owned())
                .collect()
        };
        bench.take(run("first", &[Path::Bpf, Path::Tun]));
        bench.take(run("first", &[Path::Bpf, Path::Tun]));
        assert_eq!(told(&bench), ["attacks: first"]);
        bench.take(run("second", &[Path::Tun]));
        assert_eq!(told(&bench), ["attacks: first", "attacks: second"]);
        bench.take(run("third", &[Path::Tun, Path::Bpf]));
        assert_eq!((told(&bench), bench.attacks.len()), (vec!["attacks: third".to_owned()], 2));
        // Older results replace nothing, except for a path without results.
        bench.take(run("second", &[Path::Tun]));
        assert_eq!((told(&bench), bench.attacks.len()), (vec!["attacks: third".to_owned()], 2));
        bench.take(run("second", &[Path::Tun, Path::Xdp]));
        assert_eq!(told(&bench), ["attacks: third", "attacks: second"]);
        assert_eq!(bench.attacks.len(), 3);
    }
}
