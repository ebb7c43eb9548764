//! Measures packets per second of IPv4 inside the tunnel through both routers, and for comparison of IPv6.
//!
//! The benchmark compares each with plain forwarding of the same address family. Both families take turns,
//! size by size, so that they meet the machine in the same state.

use super::figures::PacketFigure;
use super::packet::Frame;
use super::packets::{
    FLOW_ARRANGEMENTS, HOME_AGENT_INTERNET_INTERFACE, PathMeasurement, ROUTER_LAN_INTERFACE, RoutersOnPath,
    measure_lanes_in_turns,
};
use super::path::DataPath;
use super::sender::check_frames_arrive;
use super::world::{CORRESPONDENT_IPV4_ADDRESS, MOBILE_HOST_IPV4_ADDRESS, NodeInterface, link_addresses};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::console;

/// Beginning of the names of the arrangements with IPv4.
pub const IPV4_ARRANGEMENT_PREFIX: &str = "IPv4 inside";
/// Beginning of the names of the arrangements with IPv6 that stand beside them.
pub const IPV6_ARRANGEMENT_PREFIX: &str = "IPv6 inside";

fn ipv4_frame(source: NodeInterface, down: bool, size: usize) -> anyhow::Result<Frame> {
    let (mnn, cn) = (MOBILE_HOST_IPV4_ADDRESS.parse()?, CORRESPONDENT_IPV4_ADDRESS.parse()?);
    let ends = if down { (cn, mnn) } else { (mnn, cn) };
    Ok(Frame::new_ipv4(link_addresses(source), ends, size))
}

/// Measures packets per second of IPv4 and of IPv6 in both directions.
pub fn measure_ipv4_rates(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<PacketFigure>> {
    let mut figures = Vec::new();
    for arrangement in FLOW_ARRANGEMENTS.iter().filter(|one| one.routers_on_path == RoutersOnPath::Both) {
        let (source, sink, down) = (arrangement.source, arrangement.sink, arrangement.to_mobile_network);
        let direction = super::tcp::direction_name(down);
        let names =
            [IPV6_ARRANGEMENT_PREFIX, IPV4_ARRANGEMENT_PREFIX].map(|family| format!("{family}, {direction}"));
        let mut of_family = [Vec::new(), Vec::new()];
        for size in &plan.packet_sizes {
            for ((name, found), is_ipv4) in names.iter().zip(&mut of_family).zip([false, true]) {
                let mut lanes = Vec::new();
                for (path, network) in
                    bed.networks_for(RoutersOnPath::Both).filter(|(path, _)| path.carries_ipv4())
                {
                    let frame = match is_ipv4 {
                        true => ipv4_frame(source, down, *size)?,
                        false => arrangement.build_frame(path, *size)?,
                    };
                    if is_ipv4 && path == DataPath::Plain {
                        check_frames_arrive(
                            network,
                            source,
                            if down { HOME_AGENT_INTERNET_INTERFACE } else { ROUTER_LAN_INTERFACE },
                            &frame,
                        )?;
                    }
                    lanes.push(PathMeasurement::new(path, network, source, sink, frame)?);
                }
                found.extend(measure_lanes_in_turns(bed, plan, name, *size, lanes)?);
            }
        }
        figures.extend(of_family.into_iter().flatten());
        console::print_step(&format!("packets: IPv4 inside, {direction}"));
    }
    Ok(figures)
}
