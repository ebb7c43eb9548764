//! Measures packets per second of both routers together and of each alone, for several sizes and all paths.
//!
//! The paths take turns in several rounds, so that other load of the machine affects all paths equally.

use super::figures::{PacketFigure, SOURCE_AND_SINK, Series};
use super::flood::flood;
use super::packet::{Frame, IPV6, LINK, PacketAddresses};
use super::path::Path;
use super::sender::{Sender, check_frames_arrive};
use super::sink::Sink;
use super::world::{CARE_OF, CN, HOME_AGENT, MNN, SEGMENTS, World, WorldInterface, link_addresses};
use super::{Effort, Testbeds};
use carnet_testbed::clock::{MILLISECOND, monotonic};
use carnet_testbed::console;

/// Interface of the host in the mobile network.
pub const M0: WorldInterface = WorldInterface { node: "mnn", interface: "m0" };
const E0: WorldInterface = WorldInterface { node: "mr", interface: "e0" };
/// Interface of the mobile router to the mobile network.
pub const I0: WorldInterface = WorldInterface { node: "mr", interface: "i0" };
const F0: WorldInterface = WorldInterface { node: "ha", interface: "f0" };
/// Interface of the home agent to the correspondent node.
pub const H0: WorldInterface = WorldInterface { node: "ha", interface: "h0" };
/// Interface of the correspondent node.
pub const C0: WorldInterface = WorldInterface { node: "cn", interface: "c0" };

/// The routers that the packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The mobile router and the home agent.
    Both,
    /// Only the mobile router uses the data path under test.
    Router,
    /// Only the home agent uses the data path under test.
    Agent,
    /// No router: a sink takes the packets before the first router. The figure is the cost of source and
    /// sink.
    None,
}

/// A part of the network that the benchmark measures, with a source and a sink.
#[derive(Debug, Clone, Copy)]
pub struct Arrangement {
    /// Name of the arrangement in results.
    pub name: &'static str,
    /// Routers that the packets pass.
    pub part: Part,
    /// Place at which the sender sends packets into the network.
    pub source: WorldInterface,
    /// Place at which the sink receives the packets.
    pub sink: WorldInterface,
    /// Whether the packets go to the mobile network.
    pub down: bool,
    /// Whether the sender sends the packets with an outer header.
    pub outer: bool,
}

/// All arrangements.
pub const ARRANGEMENTS: [Arrangement; 7] = [
    arrangement(SOURCE_AND_SINK, Part::None, M0, I0, false, false),
    arrangement("both routers, up", Part::Both, M0, C0, false, false),
    arrangement("both routers, down", Part::Both, C0, M0, true, false),
    arrangement("mobile router alone, up", Part::Router, M0, F0, false, false),
    arrangement("mobile router alone, down", Part::Router, F0, M0, true, true),
    arrangement("home agent alone, up", Part::Agent, E0, C0, false, true),
    arrangement("home agent alone, down", Part::Agent, C0, E0, true, false),
];

const fn arrangement(
    name: &'static str,
    part: Part,
    source: WorldInterface,
    sink: WorldInterface,
    down: bool,
    outer: bool,
) -> Arrangement {
    Arrangement { name, part, source, sink, down, outer }
}

impl Arrangement {
    /// Returns the frame that the sender sends on this path.
    pub fn frame(&self, path: Path, size: usize) -> anyhow::Result<Frame> {
        let ends =
            |from: &str, to: &str| -> anyhow::Result<PacketAddresses> { Ok((from.parse()?, to.parse()?)) };
        let outer = match (self.outer, path, self.down) {
            (false, _, _) | (_, Path::Plain, _) => None,
            (true, Path::Seg6, false) => Some(ends(CARE_OF, SEGMENTS[0])?),
            (true, Path::Seg6, true) => Some(ends("2001:db8:f0::1", SEGMENTS[1])?),
            (true, _, false) => Some(ends(CARE_OF, HOME_AGENT)?),
            (true, _, true) => Some(ends(HOME_AGENT, CARE_OF)?),
        };
        let inner = if self.down { ends(CN, MNN)? } else { ends(MNN, CN)? };
        Ok(Frame::new(link_addresses(self.source), outer, inner, size))
    }
}

/// A path in an arrangement, ready to be measured.
pub struct PathMeasurement<'a> {
    path: Path,
    world: &'a World,
    /// Packets that the TUN devices of both routers had carried before.
    by_tun_before: u64,
    sender: Sender,
    sink: Sink,
    frames: Vec<Frame>,
    rates: Vec<f64>,
    sent: u64,
    lost: u64,
}

impl PathMeasurement<'_> {
    /// Attaches a sender of this frame and a sink to a world.
    pub fn new(
        path: Path,
        world: &World,
        source: WorldInterface,
        sink: WorldInterface,
        frame: Frame,
    ) -> anyhow::Result<PathMeasurement<'_>> {
        Ok(PathMeasurement {
            path,
            world,
            by_tun_before: world.packets_by_tun()?,
            sender: Sender::in_bursts(world, source, &frame)?,
            sink: Sink::counting_at(world, sink)?,
            frames: vec![frame],
            rates: Vec::new(),
            sent: 0,
            lost: 0,
        })
    }
}

/// Measures one arrangement with packets of one size.
fn one(
    bed: &Testbeds,
    effort: &Effort,
    arrangement: &Arrangement,
    size: usize,
) -> anyhow::Result<Vec<PacketFigure>> {
    let mut lanes = Vec::new();
    for (path, world) in bed.worlds(arrangement.part) {
        if arrangement.part == Part::None && path != Path::Plain {
            continue;
        }
        let frame = arrangement.frame(path, size)?;
        lanes.push(PathMeasurement::new(path, world, arrangement.source, arrangement.sink, frame)?);
    }
    take_turns(bed, effort, arrangement.name, size, lanes)
}

/// Measures packets of one size through several paths by turns. `name` is the name of the arrangement.
pub fn take_turns(
    bed: &Testbeds,
    effort: &Effort,
    name: &str,
    size: usize,
    mut lanes: Vec<PathMeasurement<'_>>,
) -> anyhow::Result<Vec<PacketFigure>> {
    for round in 0..effort.rounds {
        // Rotate the order, so that no data path is always measured first.
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let lane = &mut lanes[at];
            let (sender, sink, frames) = (&mut lane.sender, &lane.sink, &mut lane.frames);
            flood(sender, sink, frames, 5 * MILLISECOND, |_, _| {})?;
            let result = flood(sender, sink, frames, effort.flood, |_, _| {})?;
            lane.rates.push(result.rate());
            lane.sent += result.sent;
            lane.lost += result.lost();
        }
        bed.check_running()?;
    }
    for lane in &lanes {
        let found = lane.sink.octets()?;
        // Check that the mean frame has the size of a single packet, with or without the outer header.
        // Otherwise the sink got super packets.
        anyhow::ensure!(
            [LINK + size, LINK + IPV6 + size].map(|octets| octets as f64).contains(&found),
            "{}, {}: packets arrive with {found} octets on the average, expected {} or {}",
            name,
            lane.path.name(),
            LINK + size,
            LINK + IPV6 + size
        );
    }
    let plain = lanes.iter().find(|lane| lane.path == Path::Plain).map(|lane| Series::of(lane.rates.clone()));
    let figure = |lane: PathMeasurement<'_>| {
        let by_tun = lane.world.packets_by_tun()?.saturating_sub(lane.by_tun_before);
        let rate = Series::of(lane.rates);
        Ok(PacketFigure {
            arrangement: name.into(),
            size,
            path: lane.path,
            ns: if rate.median > 0.0 { 1e9 / rate.median } else { 0.0 },
            to_plain: plain.as_ref().filter(|_| name != SOURCE_AND_SINK).and_then(|plain| rate.ratio(plain)),
            rate,
            sent: lane.sent,
            lost: lane.lost,
            by_tun,
        })
    };
    lanes.into_iter().map(figure).collect()
}

/// Measures packets per second in all arrangements.
pub fn measure(bed: &Testbeds, effort: &Effort) -> anyhow::Result<Vec<PacketFigure>> {
    let mut figures = Vec::new();
    for (_, world) in bed.worlds(Part::None).filter(|(path, _)| *path == Path::Plain) {
        for size in &effort.sizes {
            let [alone, .., outer, _] = &ARRANGEMENTS;
            check_frames_arrive(world, alone.source, alone.sink, &alone.frame(Path::Bpf, *size)?)?;
            check_frames_arrive(world, outer.source, F0, &outer.frame(Path::Bpf, *size)?)?;
        }
    }
    for arrangement in &ARRANGEMENTS {
        let start = monotonic();
        for size in &effort.sizes {
            figures.extend(one(bed, effort, arrangement, *size)?);
        }
        console::step(&format!("packets: {}, {:.0} s", arrangement.name, (monotonic() - start) as f64 / 1e9));
    }
    Ok(figures)
}
