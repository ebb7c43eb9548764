//! Measures packets per second through routers with a ruleset that uses connection tracking.
//!
//! Mobile router and home agent have the same nftables rules over every path. The rules accept what the host
//! in the mobile network began, and drop all other forwarded packets. The measured flow is a UDP flow that
//! connection tracking calls assured: both ends have sent for more than two seconds
//! (`nf_conntrack_proto_udp.c`). So the kernel's fast path for known connections serves plain forwarding, and
//! carnet's programs may take the packets.

use super::figures::PacketFigure;
use super::packet::Frame;
use super::packets::{
    CORRESPONDENT_INTERFACE, FLOW_ARRANGEMENTS, HOST_INTERFACE, PathMeasurement, RoutersOnPath,
    measure_lanes_in_turns,
};
use super::path::DataPath;
use super::sender::PacketSource;
use super::tcp::run_with_input;
use super::world::{CORRESPONDENT_ADDRESS, MOBILE_HOST_ADDRESS, TestNetwork, link_addresses};
use super::{MeasurementPlan, Testbeds};
use anyhow::Context;
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;
use carnet_testbed::process::command_in_node;
use carnet_testbed::tools;

/// Time for which both ends send before a measurement. carnet reads changed rules within a second. Connection
/// tracking calls a flow assured after two more seconds.
const FLOW_ESTABLISHMENT_TIME: u64 = 4 * SECOND;
/// Time between two packets of each direction before a measurement.
const FLOW_ESTABLISHMENT_INTERVAL: u64 = 20 * MILLISECOND;

/// Rules of each router for packets that begin a connection. The last rule is for tunnelled packets of
/// carnet's slow path, which enter or leave its TUN device.
const FORWARDING_RULES: [(&str, &str); 2] = [
    ("mr", "iifname \"i0\" accept\niifname { \"carnet0\", \"e0\" } oifname { \"carnet0\", \"e0\" } accept"),
    ("ha", "oifname \"h0\" accept\niifname { \"carnet0\", \"f0\" } oifname { \"carnet0\", \"f0\" } accept"),
];

/// Sets the rules in both routers of a test network, or removes them.
fn set_rules(network: &TestNetwork, present: bool) -> anyhow::Result<()> {
    for (role, accepted) in FORWARDING_RULES {
        let mut rules = String::from("table inet benchmark\ndelete table inet benchmark\n");
        if present {
            rules += &format!(
                "table inet benchmark {{\nchain forward {{\n\
                 type filter hook forward priority filter; policy drop;\n\
                 ct state established,related accept\n{accepted}\n}}\n}}\n"
            );
        }
        let node = network.node_name(role);
        run_with_input(command_in_node(&node, tools::path_of_program("nft")).args(["-f", "-"]), &rules)
            .with_context(|| format!("nft in node {node}"))?;
    }
    Ok(())
}

/// Lets both ends send packets of the flow until connection tracking calls it assured.
fn establish_flow(bed: &Testbeds, down: bool) -> anyhow::Result<()> {
    let (mnn, cn) = (MOBILE_HOST_ADDRESS.parse()?, CORRESPONDENT_ADDRESS.parse()?);
    let mut frames = [
        Frame::new(link_addresses(HOST_INTERFACE), None, (mnn, cn), 64),
        Frame::new(link_addresses(CORRESPONDENT_INTERFACE), None, (cn, mnn), 64),
    ];
    // The measured direction sends to the discard port, so the frames of the other direction come from this
    // port.
    frames[usize::from(!down)].swap_ports();
    let mut senders = Vec::new();
    for (_, network) in networks_with_carnet(bed) {
        for (place, frame) in [HOST_INTERFACE, CORRESPONDENT_INTERFACE].into_iter().zip(&frames) {
            senders.push((PacketSource::for_single_frames(network, place)?, frame.clone()));
        }
    }
    let end = monotonic_now() + FLOW_ESTABLISHMENT_TIME;
    while monotonic_now() < end {
        for (sender, frame) in &mut senders {
            sender.send_frames(std::slice::from_ref(frame), 1)?;
        }
        clock::sleep(FLOW_ESTABLISHMENT_INTERVAL);
    }
    Ok(())
}

fn networks_with_carnet(bed: &Testbeds) -> impl Iterator<Item = (DataPath, &TestNetwork)> {
    bed.networks_for(RoutersOnPath::Both).filter(|(path, _)| *path != DataPath::Seg6)
}

/// Measures packets per second in both directions. Afterwards the routers have no rules.
pub fn measure_with_ruleset(bed: &Testbeds, plan: &MeasurementPlan) -> anyhow::Result<Vec<PacketFigure>> {
    let mut figures = Vec::new();
    networks_with_carnet(bed).try_for_each(|(_, network)| set_rules(network, true))?;
    for arrangement in FLOW_ARRANGEMENTS.iter().filter(|one| one.routers_on_path == RoutersOnPath::Both) {
        let name =
            format!("ruleset and conntrack, {}", super::tcp::direction_name(arrangement.to_mobile_network));
        establish_flow(bed, arrangement.to_mobile_network)?;
        for size in &plan.packet_sizes {
            let mut lanes = Vec::new();
            for (path, network) in networks_with_carnet(bed) {
                let frame = arrangement.build_frame(path, *size)?;
                lanes.push(PathMeasurement::new(path, network, arrangement.source, arrangement.sink, frame)?);
            }
            figures.extend(measure_lanes_in_turns(bed, plan, &name, *size, lanes)?);
        }
        console::print_step(&format!("packets: {name}"));
    }
    networks_with_carnet(bed).try_for_each(|(_, network)| set_rules(network, false))?;
    Ok(figures)
}
