//! Measures packets per second without loss, by turns through plain routers and the subject. The method is
//! that of the benchmark ([`carnet_bench::flood`]). The mobile router gets a whole core, or a share of a
//! core.
//!
//! The kernel forwards packets in the context of the program that happens to run when a packet arrives. So a
//! limit for carnet's process would not limit forwarding. To give the mobile router a share, kernel threads
//! poll its interfaces and those of the next node (threaded NAPI). The threads of the mobile router, and its
//! program, are in a control group on one core. A rival program also runs on this core all the time
//! (`carnet_testbed::quota`). Source, home agent and sink have the other cores. The result is the packets per
//! second of the time that the group really ran, multiplied with the share.

use anyhow::{Context, ensure};

use super::test_networks::{PLAIN_SERIES, SUBJECT_SERIES, TestNetworks, running_process_id};
use carnet_bench::cores::Cores;
use carnet_bench::flood::send_packet_flood;
use carnet_bench::packet::Frame;
use carnet_bench::packets::{FLOW_ARRANGEMENTS, FlowArrangement};
use carnet_bench::path::DataPath;
use carnet_bench::sender::PacketSource;
use carnet_bench::sink::PacketSink;
use carnet_bench::world::TestNetwork;
use carnet_testbed::clock::MILLISECOND;
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::{quota, tools};

struct PathMeasurement {
    series: &'static str,
    sender: PacketSource,
    sink: PacketSink,
    frames: Vec<Frame>,
}

/// Result of a measurement: packet size, series, packets per second.
pub type MeasuredPacketRate = (u32, &'static str, f64);

/// Measures packets of all sizes. Calls `told` after each measurement.
pub fn measure_packet_rates(
    routers: &mut TestNetworks,
    sizes: &[u32],
    repeat: usize,
    milliseconds: u64,
    share: Option<f64>,
    mut told: impl FnMut(MeasuredPacketRate),
) -> anyhow::Result<()> {
    let cores = Cores::of_current_thread()?;
    // A command that has ended is not in this list, because another process may have its number.
    let programs = routers.process_ids();
    let Some(share) = share else {
        // Pin sender, routers and sink to one core, so that the result is the sum of their work.
        pin_processes(&programs, &cores, true)?;
        let result = measure_rounds(routers, sizes, repeat, milliseconds, None, &mut told);
        return pin_processes(&programs, &cores, false).and(result);
    };
    let result = limit_processor_time(routers, share, cores.measuring_core).and_then(|group| {
        cores.avoid_measuring_core()?;
        measure_rounds(routers, sizes, repeat, milliseconds, Some((&group, share)), &mut told)
    });
    // Restore the networks for the next measurement even after a failure.
    let mut undone = vec![pin_processes(&programs, &cores, false)];
    undone.extend([&routers.plain_network, &routers.subject_network].map(|world| set_polling(world, false)));
    first_error(result, undone)
}

/// Returns the error of the measurement, otherwise the first error of the steps that restored the networks.
fn first_error(done: anyhow::Result<()>, undone: Vec<anyhow::Result<()>>) -> anyhow::Result<()> {
    std::iter::once(done).chain(undone).collect()
}

fn pin_processes(programs: &[u32], cores: &Cores, pinned: bool) -> anyhow::Result<()> {
    cores.set_process_pinning(0, pinned)?;
    programs.iter().try_for_each(|program| cores.set_process_pinning(*program, pinned))
}

fn measure_rounds(
    routers: &mut TestNetworks,
    sizes: &[u32],
    repeat: usize,
    milliseconds: u64,
    group: Option<(&quota::CpuQuota, f64)>,
    told: &mut impl FnMut(MeasuredPacketRate),
) -> anyhow::Result<()> {
    let arrangement = FLOW_ARRANGEMENTS.iter().find(|one| one.name == "both routers, up");
    let arrangement = arrangement.context("the benchmark has no packets through both routers")?;
    for size in sizes {
        let lane = |series, world: &TestNetwork| {
            measure_packets_over_path(series, world, arrangement, *size as usize)
        };
        let mut lanes =
            [lane(PLAIN_SERIES, &routers.plain_network)?, lane(SUBJECT_SERIES, &routers.subject_network)?];
        for round in 0..repeat {
            for turn in 0..lanes.len() {
                let at = (turn + round) % lanes.len();
                let lane = &mut lanes[at];
                let mut once = |milliseconds| {
                    send_packet_flood(
                        &mut lane.sender,
                        &lane.sink,
                        &mut lane.frames,
                        milliseconds * MILLISECOND,
                        |_, _| {},
                    )
                };
                once(milliseconds.div_ceil(10))?;
                let used = || group.map_or(Ok(0), |(group, _)| group.used_nanoseconds());
                let before = used()?;
                let passed = once(milliseconds)?;
                let used = used()? - before;
                ensure!(
                    passed.received_packets > 0,
                    "no packet of {size} octets arrives through both routers ({})",
                    lane.series
                );
                let rate = match group {
                    None => passed.packets_per_second(),
                    Some((_, share)) => passed.received_packets as f64 * 1e9 / used.max(1) as f64 * share,
                };
                told((*size, lane.series, rate));
            }
            routers.check_running()?;
        }
    }
    Ok(())
}

fn measure_packets_over_path(
    series: &'static str,
    world: &TestNetwork,
    arrangement: &FlowArrangement,
    size: usize,
) -> anyhow::Result<PathMeasurement> {
    let frame = arrangement.build_frame(DataPath::Plain, size)?;
    Ok(PathMeasurement {
        series,
        sender: PacketSource::for_bursts(world, arrangement.source, &frame)?,
        sink: PacketSink::attach_counting(world, arrangement.sink)?,
        frames: vec![frame],
    })
}

/// Interfaces that kernel threads poll, each with its peer: the interfaces of the mobile router, and that of
/// the next node. If the next node's interface had no thread, the mobile router's threads would do its work.
const POLLED_INTERFACES: [[(&str, &str); 2]; 3] =
    [[("mr", "i0"), ("mnn", "m0")], [("mr", "e0"), ("ha", "f0")], [("ha", "f0"), ("mr", "e0")]];

fn set_polling(world: &TestNetwork, threads: bool) -> anyhow::Result<()> {
    // When restoring settings, continue with the other settings after a failure.
    let mut all = Vec::new();
    for pair in POLLED_INTERFACES {
        let made = set_interface_polling(world, pair, threads);
        if threads {
            made?;
        } else {
            all.push(made);
        }
    }
    first_error(Ok(()), all)
}

fn set_interface_polling(
    world: &TestNetwork,
    [place, peer]: [(&str, &str); 2],
    threads: bool,
) -> anyhow::Result<()> {
    let set = |(role, interface): (&str, &str), what: &str, on: bool| {
        let mut ethtool = command_in_node(&world.node_name(role), tools::path_of_program("ethtool"));
        run_for_output(ethtool.args(["-K", interface, what, if on { "on" } else { "off" }])).map(drop)
    };
    let (node, interface) = (world.node_name(place.0), place.1);
    // A thread can poll a veth (NAPI) if the veth merges packets (GRO) and its peer does not send merged ones
    // (TSO).
    if threads {
        set(place, "gro", true)?;
        set(peer, "tso", false)?;
    }
    // /sys shows the interfaces of the namespace in which it was mounted. So mount it inside the node's
    // namespace.
    let script = format!(
        "mount -t sysfs sysfs /sys && echo {} > /sys/class/net/{interface}/threaded",
        u8::from(threads)
    );
    let told = run_for_output(command_in_node(&node, "unshare").args(["--mount", "sh", "-ec", &script]));
    let told = told.map(drop).context("the kernel has no threads for this interface");
    if threads {
        return told;
    }
    first_error(told, vec![set(place, "gro", false), set(peer, "tso", true)])
}

/// Limits both mobile routers together to a share of a core; only one of them works at a time.
fn limit_processor_time(
    routers: &mut TestNetworks,
    share: f64,
    core: usize,
) -> anyhow::Result<quota::CpuQuota> {
    let group = quota::CpuQuota::create_group("routers", share, core)?;
    for world in [&routers.plain_network, &routers.subject_network] {
        set_polling(world, true)?;
    }
    let program = routers.subject_network.daemons.last_mut().and_then(running_process_id);
    group.add_members(&["i0", "e0"], program)?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_of_a_measurement_is_reported() {
        let failed = |why: &'static str| Err(anyhow::anyhow!(why));
        assert!(first_error(Ok(()), vec![Ok(()), Ok(())]).is_ok());
        let told = first_error(failed("no group"), vec![failed("no ethtool")]).expect_err("is one");
        assert_eq!(told.to_string(), "no group");
        assert_eq!(first_error(Ok(()), vec![Ok(()), failed("b")]).expect_err("is one").to_string(), "b");
    }
}
