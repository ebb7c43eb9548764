//! Measures packets per second of both routers together and of each alone, for several sizes and all paths.
//!
//! The paths take turns in several rounds, so that other load of the machine affects all paths equally.

use super::figures::{PacketFigure, SOURCE_AND_SINK, Series};
use super::flood::send_packet_flood;
use super::packet::{ETHERNET_HEADER_LENGTH, Frame, IPV6_HEADER_LENGTH, PacketAddresses};
use super::path::DataPath;
use super::sender::{PacketSource, check_frames_arrive};
use super::sink::PacketSink;
use super::world::{
    CARE_OF_ADDRESS, CORRESPONDENT_ADDRESS, HOME_AGENT_ADDRESS, MOBILE_HOST_ADDRESS, NodeInterface,
    SEGMENT_ADDRESSES, TestNetwork, link_addresses,
};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::clock::{MILLISECOND, monotonic_now};
use carnet_testbed::console;

/// Interface of the host in the mobile network.
pub const HOST_INTERFACE: NodeInterface = NodeInterface { node: "mnn", interface: "m0" };
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };
/// Interface of the mobile router to the mobile network.
pub const ROUTER_LAN_INTERFACE: NodeInterface = NodeInterface { node: "mr", interface: "i0" };
const HOME_AGENT_INTERFACE: NodeInterface = NodeInterface { node: "ha", interface: "f0" };
/// Interface of the home agent to the correspondent node.
pub const HOME_AGENT_INTERNET_INTERFACE: NodeInterface = NodeInterface { node: "ha", interface: "h0" };
/// Interface of the correspondent node.
pub const CORRESPONDENT_INTERFACE: NodeInterface = NodeInterface { node: "cn", interface: "c0" };

/// The routers that the packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutersOnPath {
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
pub struct FlowArrangement {
    /// Name of the arrangement in results.
    pub name: &'static str,
    /// Routers that the packets pass.
    pub routers_on_path: RoutersOnPath,
    /// Place at which the sender sends packets into the network.
    pub source: NodeInterface,
    /// Place at which the sink receives the packets.
    pub sink: NodeInterface,
    /// Whether the packets go to the mobile network.
    pub to_mobile_network: bool,
    /// Whether the sender sends the packets with an outer header.
    pub sends_tunnelled_packets: bool,
}

/// All arrangements.
pub const FLOW_ARRANGEMENTS: [FlowArrangement; 7] = [
    flow_arrangement(
        SOURCE_AND_SINK,
        RoutersOnPath::None,
        HOST_INTERFACE,
        ROUTER_LAN_INTERFACE,
        false,
        false,
    ),
    flow_arrangement(
        "both routers, up",
        RoutersOnPath::Both,
        HOST_INTERFACE,
        CORRESPONDENT_INTERFACE,
        false,
        false,
    ),
    flow_arrangement(
        "both routers, down",
        RoutersOnPath::Both,
        CORRESPONDENT_INTERFACE,
        HOST_INTERFACE,
        true,
        false,
    ),
    flow_arrangement(
        "mobile router alone, up",
        RoutersOnPath::Router,
        HOST_INTERFACE,
        HOME_AGENT_INTERFACE,
        false,
        false,
    ),
    flow_arrangement(
        "mobile router alone, down",
        RoutersOnPath::Router,
        HOME_AGENT_INTERFACE,
        HOST_INTERFACE,
        true,
        true,
    ),
    flow_arrangement(
        "home agent alone, up",
        RoutersOnPath::Agent,
        ROUTER_UPLINK,
        CORRESPONDENT_INTERFACE,
        false,
        true,
    ),
    flow_arrangement(
        "home agent alone, down",
        RoutersOnPath::Agent,
        CORRESPONDENT_INTERFACE,
        ROUTER_UPLINK,
        true,
        false,
    ),
];

const fn flow_arrangement(
    name: &'static str,
    part: RoutersOnPath,
    source: NodeInterface,
    sink: NodeInterface,
    down: bool,
    outer: bool,
) -> FlowArrangement {
    FlowArrangement {
        name,
        routers_on_path: part,
        source,
        sink,
        to_mobile_network: down,
        sends_tunnelled_packets: outer,
    }
}

impl FlowArrangement {
    /// Returns the frame that the sender sends on this path.
    pub fn build_frame(&self, path: DataPath, size: usize) -> anyhow::Result<Frame> {
        let ends =
            |from: &str, to: &str| -> anyhow::Result<PacketAddresses> { Ok((from.parse()?, to.parse()?)) };
        let outer = match (self.sends_tunnelled_packets, path, self.to_mobile_network) {
            (false, _, _) | (_, DataPath::Plain, _) => None,
            (true, DataPath::Seg6, false) => Some(ends(CARE_OF_ADDRESS, SEGMENT_ADDRESSES[0])?),
            (true, DataPath::Seg6, true) => Some(ends("2001:db8:f0::1", SEGMENT_ADDRESSES[1])?),
            (true, _, false) => Some(ends(CARE_OF_ADDRESS, HOME_AGENT_ADDRESS)?),
            (true, _, true) => Some(ends(HOME_AGENT_ADDRESS, CARE_OF_ADDRESS)?),
        };
        let inner = if self.to_mobile_network {
            ends(CORRESPONDENT_ADDRESS, MOBILE_HOST_ADDRESS)?
        } else {
            ends(MOBILE_HOST_ADDRESS, CORRESPONDENT_ADDRESS)?
        };
        Ok(Frame::new(link_addresses(self.source), outer, inner, size))
    }
}

/// A path in an arrangement, ready to be measured.
pub struct PathMeasurement<'a> {
    path: DataPath,
    network: &'a TestNetwork,
    /// Number of packets that the TUN devices of both routers had carried before the measurement.
    by_tun_before: u64,
    sender: PacketSource,
    sink: PacketSink,
    frames: Vec<Frame>,
    rates: Vec<f64>,
    sent_packets: u64,
    lost_packets: u64,
}

impl PathMeasurement<'_> {
    /// Attaches a sender of this frame and a sink to a test network.
    pub fn new(
        path: DataPath,
        network: &TestNetwork,
        source: NodeInterface,
        sink: NodeInterface,
        frame: Frame,
    ) -> anyhow::Result<PathMeasurement<'_>> {
        Ok(PathMeasurement {
            path,
            network,
            by_tun_before: network.packets_by_tun()?,
            sender: PacketSource::for_bursts(network, source, &frame)?,
            sink: PacketSink::attach_counting(network, sink)?,
            frames: vec![frame],
            rates: Vec::new(),
            sent_packets: 0,
            lost_packets: 0,
        })
    }
}

/// Measures one arrangement with packets of one size.
fn measure_arrangement(
    bed: &Testbeds,
    plan: &MeasurementPlan,
    arrangement: &FlowArrangement,
    size: usize,
) -> anyhow::Result<Vec<PacketFigure>> {
    let mut lanes = Vec::new();
    for (path, network) in bed.networks_for(arrangement.routers_on_path) {
        if arrangement.routers_on_path == RoutersOnPath::None && path != DataPath::Plain {
            continue;
        }
        let frame = arrangement.build_frame(path, size)?;
        lanes.push(PathMeasurement::new(path, network, arrangement.source, arrangement.sink, frame)?);
    }
    measure_lanes_in_turns(bed, plan, arrangement.name, size, lanes)
}

/// Measures packets of one size through several paths, one path after the other in each round. `name` is the
/// name of the arrangement.
pub fn measure_lanes_in_turns(
    bed: &Testbeds,
    plan: &MeasurementPlan,
    name: &str,
    size: usize,
    mut lanes: Vec<PathMeasurement<'_>>,
) -> anyhow::Result<Vec<PacketFigure>> {
    for round in 0..plan.round_count {
        // Rotate the order, so that no data path is always measured first.
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let lane = &mut lanes[at];
            let (sender, sink, frames) = (&mut lane.sender, &lane.sink, &mut lane.frames);
            send_packet_flood(sender, sink, frames, 5 * MILLISECOND, |_, _| {})?;
            let result = send_packet_flood(sender, sink, frames, plan.flood_duration, |_, _| {})?;
            lane.rates.push(result.packets_per_second());
            lane.sent_packets += result.sent_packets;
            lane.lost_packets += result.lost_packets();
        }
        bed.check_running()?;
    }
    for lane in &lanes {
        let found = lane.sink.mean_frame_length()?;
        // Check that the mean frame has the size of a single packet, with or without the outer header.
        // Otherwise the sink got super packets.
        anyhow::ensure!(
            [ETHERNET_HEADER_LENGTH + size, ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + size]
                .map(|octets| octets as f64)
                .contains(&found),
            "{}, {}: packets arrive with {found} octets on the average, expected {} or {}",
            name,
            lane.path.name(),
            ETHERNET_HEADER_LENGTH + size,
            ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + size
        );
    }
    let plain = lanes
        .iter()
        .find(|lane| lane.path == DataPath::Plain)
        .map(|lane| Series::of_rounds(lane.rates.clone()));
    let figure = |lane: PathMeasurement<'_>| {
        let by_tun = lane.network.packets_by_tun()?.saturating_sub(lane.by_tun_before);
        let rate = Series::of_rounds(lane.rates);
        Ok(PacketFigure {
            arrangement: name.into(),
            size,
            path: lane.path,
            nanoseconds_per_packet: if rate.median > 0.0 { 1e9 / rate.median } else { 0.0 },
            ratio_to_plain: plain
                .as_ref()
                .filter(|_| name != SOURCE_AND_SINK)
                .and_then(|plain| rate.ratio_to(plain)),
            rate,
            sent: lane.sent_packets,
            lost: lane.lost_packets,
            by_tun,
        })
    };
    lanes.into_iter().map(figure).collect()
}

/// Measures packets per second in all arrangements.
pub fn measure_packet_rates(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<PacketFigure>> {
    let mut figures = Vec::new();
    for (_, network) in bed.networks_for(RoutersOnPath::None).filter(|(path, _)| *path == DataPath::Plain) {
        for size in &plan.packet_sizes {
            let [alone, .., outer, _] = &FLOW_ARRANGEMENTS;
            check_frames_arrive(
                network,
                alone.source,
                alone.sink,
                &alone.build_frame(DataPath::Bpf, *size)?,
            )?;
            check_frames_arrive(
                network,
                outer.source,
                HOME_AGENT_INTERFACE,
                &outer.build_frame(DataPath::Bpf, *size)?,
            )?;
        }
    }
    for arrangement in &FLOW_ARRANGEMENTS {
        let start = monotonic_now();
        for size in &plan.packet_sizes {
            figures.extend(measure_arrangement(bed, plan, arrangement, *size)?);
        }
        console::print_step(&format!(
            "packets: {}, {:.0} s",
            arrangement.name,
            (monotonic_now() - start) as f64 / 1e9
        ));
    }
    Ok(figures)
}
