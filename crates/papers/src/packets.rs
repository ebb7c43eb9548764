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

use super::bed::{PLAIN, Routers, SUBJECT, running};
use carnet_bench::cores::Cores;
use carnet_bench::flood::flood;
use carnet_bench::packet::Frame;
use carnet_bench::packets::{ARRANGEMENTS, Arrangement};
use carnet_bench::path::Path;
use carnet_bench::sender::Sender;
use carnet_bench::sink::Sink;
use carnet_bench::world::World;
use carnet_testbed::clock::MILLISECOND;
use carnet_testbed::process::{in_node, output};
use carnet_testbed::{quota, tools};

struct PathMeasurement {
    series: &'static str,
    sender: Sender,
    sink: Sink,
    frames: Vec<Frame>,
}

/// Result of a measurement: packet size, series, packets per second.
pub type PacketResult = (u32, &'static str, f64);

/// Measures packets of all sizes. Calls `told` after each measurement.
pub fn measure(
    routers: &mut Routers,
    sizes: &[u32],
    repeat: usize,
    milliseconds: u64,
    share: Option<f64>,
    mut told: impl FnMut(PacketResult),
) -> anyhow::Result<()> {
    let cores = Cores::of_caller()?;
    // An ended command is not in this list, because another process may have its number.
    let programs = routers.programs();
    let Some(share) = share else {
        // Pin sender, routers and sink to one core, so that the result is the sum of their work.
        pin(&programs, &cores, true)?;
        let result = rounds(routers, sizes, repeat, milliseconds, None, &mut told);
        return pin(&programs, &cores, false).and(result);
    };
    let result = limit(routers, share, cores.measuring_core).and_then(|group| {
        cores.avoid_measuring_core()?;
        rounds(routers, sizes, repeat, milliseconds, Some((&group, share)), &mut told)
    });
    // Restore the networks for the next measurement even after a failure.
    let mut undone = vec![pin(&programs, &cores, false)];
    undone.extend([&routers.plain, &routers.subject].map(|world| polling(world, false)));
    first(result, undone)
}

/// Returns the error of the measurement, otherwise the first error of the steps that restored the networks.
fn first(done: anyhow::Result<()>, undone: Vec<anyhow::Result<()>>) -> anyhow::Result<()> {
    std::iter::once(done).chain(undone).collect()
}

fn pin(programs: &[u32], cores: &Cores, pinned: bool) -> anyhow::Result<()> {
    cores.move_process(0, pinned)?;
    programs.iter().try_for_each(|program| cores.move_process(*program, pinned))
}

fn rounds(
    routers: &mut Routers,
    sizes: &[u32],
    repeat: usize,
    milliseconds: u64,
    group: Option<(&quota::CpuQuota, f64)>,
    told: &mut impl FnMut(PacketResult),
) -> anyhow::Result<()> {
    let arrangement = ARRANGEMENTS.iter().find(|one| one.name == "both routers, up");
    let arrangement = arrangement.context("the benchmark has no packets through both routers")?;
    for size in sizes {
        let lane = |series, world: &World| lane(series, world, arrangement, *size as usize);
        let mut lanes = [lane(PLAIN, &routers.plain)?, lane(SUBJECT, &routers.subject)?];
        for round in 0..repeat {
            for turn in 0..lanes.len() {
                let at = (turn + round) % lanes.len();
                let lane = &mut lanes[at];
                let mut once = |milliseconds| {
                    flood(
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
                    passed.received > 0,
                    "no packet of {size} octets arrives through both routers ({})",
                    lane.series
                );
                let rate = match group {
                    None => passed.rate(),
                    Some((_, share)) => passed.received as f64 * 1e9 / used.max(1) as f64 * share,
                };
                told((*size, lane.series, rate));
            }
            routers.check_running()?;
        }
    }
    Ok(())
}

fn lane(
    series: &'static str,
    world: &World,
    arrangement: &Arrangement,
    size: usize,
) -> anyhow::Result<PathMeasurement> {
    let frame = arrangement.frame(Path::Plain, size)?;
    Ok(PathMeasurement {
        series,
        sender: Sender::in_bursts(world, arrangement.source, &frame)?,
        sink: Sink::counting_at(world, arrangement.sink)?,
        frames: vec![frame],
    })
}

/// Interfaces that kernel threads poll, each with its peer: the interfaces of the mobile router, and that of
/// the next node. If the next node's interface had no thread, the mobile router's threads would do its work.
const POLLED: [[(&str, &str); 2]; 3] =
    [[("mr", "i0"), ("mnn", "m0")], [("mr", "e0"), ("ha", "f0")], [("ha", "f0"), ("mr", "e0")]];

fn polling(world: &World, threads: bool) -> anyhow::Result<()> {
    // When restoring settings, continue with the other settings after a failure.
    let mut all = Vec::new();
    for pair in POLLED {
        let made = polled(world, pair, threads);
        if threads {
            made?;
        } else {
            all.push(made);
        }
    }
    first(Ok(()), all)
}

fn polled(world: &World, [place, peer]: [(&str, &str); 2], threads: bool) -> anyhow::Result<()> {
    let set = |(role, interface): (&str, &str), what: &str, on: bool| {
        let mut ethtool = in_node(&world.node(role), tools::path("ethtool"));
        output(ethtool.args(["-K", interface, what, if on { "on" } else { "off" }])).map(drop)
    };
    let (node, interface) = (world.node(place.0), place.1);
    // A thread can poll a veth (NAPI) if the veth merges packets (GRO) and its peer does not send merged ones
    // (TSO).
    if threads {
        set(place, "gro", true)?;
        set(peer, "tso", false)?;
    }
    // /sys shows the interfaces of the namespace in which it was mounted, so mount it inside.
    let script = format!(
        "mount -t sysfs sysfs /sys && echo {} > /sys/class/net/{interface}/threaded",
        u8::from(threads)
    );
    let told = output(in_node(&node, "unshare").args(["--mount", "sh", "-ec", &script]));
    let told = told.map(drop).context("the kernel has no threads for this interface");
    if threads {
        return told;
    }
    first(told, vec![set(place, "gro", false), set(peer, "tso", true)])
}

/// Limits both mobile routers together to a share of a core; only one of them works at a time.
fn limit(routers: &mut Routers, share: f64, core: usize) -> anyhow::Result<quota::CpuQuota> {
    let group = quota::CpuQuota::create_group("routers", share, core)?;
    for world in [&routers.plain, &routers.subject] {
        polling(world, true)?;
    }
    let program = routers.subject.daemons.last_mut().and_then(running);
    group.add_members(&["i0", "e0"], program)?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_of_a_measurement_is_reported() {
        let failed = |why: &'static str| Err(anyhow::anyhow!(why));
        assert!(first(Ok(()), vec![Ok(()), Ok(())]).is_ok());
        let told = first(failed("no group"), vec![failed("no ethtool")]).expect_err("is one");
        assert_eq!(told.to_string(), "no group");
        assert_eq!(first(Ok(()), vec![Ok(()), failed("b")]).expect_err("is one").to_string(), "b");
    }
}
