//! Measures a home agent with many bindings: packets to and from one binding, and to and from random
//! bindings. For comparison it measures a home agent with one binding. It also measures a plain router with
//! the same number of routes, because the kernel's own tables do not fit into a cache either.
//!
//! The bindings come from a state file, as after a restart. The benchmark also measures how long the start
//! takes. Each binding has its own prefix, home address and care-of address; all care-of addresses are behind
//! one neighbour.
//!
//! Each packet goes to another binding, so the sender sends packets one by one, also for a single binding.
//! Before the rounds every binding gets some packets, because the first packets of a binding cost more.
//! Otherwise rounds of a fraction of a second would measure mainly these first packets.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::cores::process_seconds;
use super::figures::{BindingsFigure, Series, StartFigure};
use super::flood::send_packet_flood;
use super::packet::{Frame, address_with_constant_sum};
use super::path::DataPath;
use super::sender::{FRAMES_PER_BATCH, PacketSource};
use super::sink::PacketSink;
use super::world::{
    CARE_OF_ADDRESS, CORRESPONDENT_ADDRESS, HOME_AGENT_ADDRESS, NodeInterface, Programs, TestNetwork,
    link_addresses, station_config,
};
use super::{MeasurementPlan, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::isolate::{Interrupted, RUN_DIRECTORY, has_to_stop};
use carnet_testbed::process::{command_in_node, run_for_output};
use carnet_testbed::{console, topology};

/// The first half of all mobile network prefixes, `2001:dba::/32`.
const MOBILE_NETWORKS_HIGH_BITS: u32 = 0x2001_0dba;
/// The first half of all care-of addresses, `2001:dbb::/32`.
const CARE_OF_NETWORKS_HIGH_BITS: u32 = 0x2001_0dbb;
/// Lifetime of the bindings in seconds.
const BINDING_LIFETIME_SECONDS: u64 = 72 * 3600;
/// Number of packets that are sent to each binding before the measured rounds.
const PACKETS_PER_BINDING: u32 = 2;
/// Maximum duration of a start in seconds.
const START_TIMEOUT_SECONDS: u64 = 300;

const CORRESPONDENT_INTERFACE: NodeInterface = NodeInterface { node: "cn", interface: "c0" };
const ROUTER_UPLINK: NodeInterface = NodeInterface { node: "mr", interface: "e0" };

fn mobile_network_prefix(number: u32) -> String {
    let bits = u128::from(MOBILE_NETWORKS_HIGH_BITS) << 96 | u128::from(number) << 64;
    format!("{}/64", Ipv6Addr::from(bits))
}

fn home_address(number: u32) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 1, (number >> 16) as u16, number as u16)
}

/// Returns the config of a home agent with `bindings` routers, whose state file is in `folder`.
fn home_agent_config(name: &str, path: DataPath, bindings: u32, folder: &std::path::Path) -> String {
    let mut text = station_config(name, path).replacen(
        "[dataplane]",
        &format!("state_dir = \"{}\"\n[dataplane]", folder.display()),
        1,
    );
    let _ = write!(
        text,
        "[home_agent]\naddress = \"{HOME_AGENT_ADDRESS}\"\nhome_prefix = \"2001:db8:1::/64\"\nmax_lifetime = \
         \"72h\"\n"
    );
    for number in 0..bindings {
        let _ = write!(
            text,
            "[[home_agent.mobile_router]]\nhome_address = \"{}\"\nprefixes = [\"{}\"]\n\
             auth = {{ spi = 300, key = \"000102030405060708090a0b0c0d0e0f\" }}\n",
            home_address(number),
            mobile_network_prefix(number)
        );
    }
    text
}

/// Returns the content of the home agent's state file with this number of bindings.
fn stored_bindings(bindings: u32) -> String {
    let expires = clock::realtime_now() + BINDING_LIFETIME_SECONDS * SECOND;
    let one = |number: u32| {
        json!({"home_address": home_address(number), "sequence": 1, "timestamp": null, "registration": {
            "care_of_address": Ipv6Addr::from(address_with_constant_sum(CARE_OF_NETWORKS_HIGH_BITS, number)),
            "mobile_router": true, "link_local": false, "prefixes": [mobile_network_prefix(number)],
            "lifetime_s": BINDING_LIFETIME_SECONDS, "expires": expires}})
    };
    json!({"home_agent": (0..bindings).map(one).collect::<Vec<_>>()}).to_string()
}

/// Builds a test network with a plain router of `routes` routes in place of the home agent.
fn build_plain_network(routes: u32) -> anyhow::Result<TestNetwork> {
    let name = format!("{}-{routes}", DataPath::Plain.name());
    let network = TestNetwork { name, stations: Vec::new(), daemons: Vec::new() };
    network.create_links()?;
    let mut commands = String::new();
    for number in 0..routes {
        let _ = writeln!(commands, "route add {} via 2001:db8:f0::2", mobile_network_prefix(number));
    }
    let node = network.node_name("ha");
    topology::run_ip_batch(Some(&node), &commands)?;
    run_for_output(
        command_in_node(&node, "sh").args(["-ec", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"]),
    )?;
    Ok(network)
}

/// Builds a test network whose home agent has `bindings` bindings.
fn build_carnet_network(
    path: DataPath,
    bindings: u32,
    programs: &Programs,
) -> anyhow::Result<(TestNetwork, StartFigure)> {
    let name = format!("{}-{bindings}", path.name());
    let mut network = TestNetwork { name: name.clone(), stations: Vec::new(), daemons: Vec::new() };
    network.create_links()?;
    topology::run_ip_batch(Some(&network.node_name("ha")), "route add 2001:dbb::/32 via 2001:db8:f0::2\n")?;
    topology::run_ip_batch(Some(&network.node_name("cn")), "route add default via 2001:db8:c::1\n")?;
    let folder = std::path::Path::new(RUN_DIRECTORY).join(format!("state-{name}"));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let station = network.node_name("ha");
    std::fs::write(folder.join(format!("{station}.json")), stored_bindings(bindings))
        .context("cannot write a state")?;
    let start = monotonic_now();
    network.start_station("ha", &home_agent_config(&station, path, bindings, &folder), programs)?;
    let agent = network.stations.last().context("bug: the process that was just started is missing")?;
    while !agent.is_ready() {
        network.daemons.iter_mut().try_for_each(|daemon| daemon.check_running())?;
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if monotonic_now() - start > START_TIMEOUT_SECONDS * SECOND {
            bail!("the home agent's process is not ready {START_TIMEOUT_SECONDS} s after its start");
        }
        clock::sleep(5 * MILLISECOND);
    }
    let ready_s = (monotonic_now() - start) as f64 / 1e9;
    let shown = agent.show_json("bindings")?;
    let found = shown.as_array().map_or(0, Vec::len);
    ensure!(
        found == bindings as usize,
        "the home agent holds {found} bindings, expected the {bindings} that are registered"
    );
    let memory_mib = resident_memory_mib(
        network.daemons.last().context("bug: the process that was just started is missing")?.process_id(),
    )
    .unwrap_or(0.0);
    Ok((network, StartFigure { path, bindings, ready_s, memory_mib }))
}

/// Waits until the stations of a test network are idle, at most 20 s.
fn wait_until_idle(network: &TestNetwork) -> anyhow::Result<()> {
    let until = monotonic_now() + 20 * SECOND;
    for daemon in &network.daemons {
        let mut before = -1.0;
        loop {
            let used = process_seconds(daemon.process_id())?;
            // The stations are idle if they used at most one tick of 10 ms.
            if used - before < 0.015 || monotonic_now() > until {
                break;
            }
            before = used;
            clock::sleep(300 * MILLISECOND);
        }
    }
    Ok(())
}

/// Returns the resident memory of a process in MiB; `None` if the process has ended.
fn resident_memory_mib(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Generator of pseudo-random numbers (xorshift64*).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next_below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(limit)) >> 32) as u32
    }
}

/// Kind of packets to send.
#[derive(Debug, Clone, Copy)]
struct PacketKind {
    description: &'static str,
    from_mobile_network: bool,
    random_order: bool,
}

const PACKET_KINDS: [PacketKind; 4] = [
    PacketKind { description: "to one", from_mobile_network: false, random_order: false },
    PacketKind { description: "to random ones", from_mobile_network: false, random_order: true },
    PacketKind { description: "from one", from_mobile_network: true, random_order: false },
    PacketKind { description: "from random ones", from_mobile_network: true, random_order: true },
];

struct PathMeasurement {
    bindings: u32,
    sender: PacketSource,
    sink: PacketSink,
    frames: Vec<Frame>,
    rates: Vec<f64>,
    lost_packets: u64,
}

fn measure_with_binding_count(
    path: DataPath,
    worlds: &[(u32, TestNetwork)],
    what: PacketKind,
    size: usize,
    plan: &MeasurementPlan,
) -> anyhow::Result<Vec<BindingsFigure>> {
    let (source, end) = if what.from_mobile_network {
        (ROUTER_UPLINK, CORRESPONDENT_INTERFACE)
    } else {
        (CORRESPONDENT_INTERFACE, ROUTER_UPLINK)
    };
    let node = Ipv6Addr::from(address_with_constant_sum(MOBILE_NETWORKS_HIGH_BITS, 0));
    let frame = match what.from_mobile_network {
        true => Frame::new(
            link_addresses(source),
            Some((CARE_OF_ADDRESS.parse()?, HOME_AGENT_ADDRESS.parse()?)),
            (node, CORRESPONDENT_ADDRESS.parse()?),
            size,
        ),
        false => Frame::new(link_addresses(source), None, (CORRESPONDENT_ADDRESS.parse()?, node), size),
    };
    let mut lanes = Vec::new();
    for (bindings, network) in worlds {
        lanes.push(PathMeasurement {
            bindings: *bindings,
            sender: PacketSource::for_single_frames(network, source)?,
            sink: PacketSink::attach_counting(network, end)?,
            frames: vec![frame.clone(); FRAMES_PER_BATCH],
            rates: Vec::new(),
            lost_packets: 0,
        });
    }
    // Wait until the stations are idle: attaching a sink changes an interface, and a home agent then checks
    // all its routes.
    for (_, network) in worlds {
        wait_until_idle(network)?;
    }
    let set = |frame: &mut Frame, number: u32| {
        frame.set_inner_address(
            !what.from_mobile_network,
            address_with_constant_sum(MOBILE_NETWORKS_HIGH_BITS, number),
        );
        if what.from_mobile_network {
            frame.set_outer_source(address_with_constant_sum(CARE_OF_NETWORKS_HIGH_BITS, number));
        }
    };
    for lane in &mut lanes {
        let PathMeasurement { bindings, sender, sink, frames, .. } = lane;
        let mut next = 0;
        while what.random_order && next < PACKETS_PER_BINDING * *bindings {
            let mut prepare = |frames: &mut [Frame], _: u64| {
                for frame in frames {
                    set(frame, next % *bindings);
                    next += 1;
                }
            };
            send_packet_flood(sender, sink, frames, 5 * MILLISECOND, &mut prepare)?;
        }
    }
    let mut dice = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..plan.round_count {
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let lane = &mut lanes[at];
            let bindings = lane.bindings;
            // Draw a random number and write it into each frame even if all packets go to one binding. So the
            // sender's cost is the same in all cases.
            let mut prepare = |frames: &mut [Frame], _: u64| {
                for frame in frames {
                    let drawn = dice.next_below(bindings);
                    let number = if what.random_order { drawn } else { 0 };
                    set(frame, number);
                }
            };
            let (sender, sink, frames) = (&mut lane.sender, &lane.sink, &mut lane.frames);
            send_packet_flood(sender, sink, frames, 5 * MILLISECOND, &mut prepare)?;
            let result = send_packet_flood(sender, sink, frames, plan.binding_flood_duration, &mut prepare)?;
            lane.rates.push(result.packets_per_second());
            lane.lost_packets += result.lost_packets();
        }
    }
    let base = lanes.iter().find(|lane| lane.bindings == 1).map(|lane| Series::of_rounds(lane.rates.clone()));
    let figure = |lane: PathMeasurement| {
        let rate = Series::of_rounds(lane.rates);
        BindingsFigure {
            path,
            packet_kind: what.description.into(),
            size,
            bindings: lane.bindings,
            ratio_to_one_binding: base.as_ref().and_then(|base| rate.ratio_to(base)),
            rate,
            lost: lane.lost_packets,
        }
    };
    Ok(lanes.into_iter().map(figure).collect())
}

/// Measures all paths of the bed that use carnet.
pub fn measure_many_bindings(
    bed: &Testbeds,
    plan: &MeasurementPlan,
    programs: &Programs,
    starts: &mut Vec<StartFigure>,
) -> anyhow::Result<Vec<BindingsFigure>> {
    let mut figures = Vec::new();
    let paths: Vec<DataPath> = bed.supported_paths().filter(|path| path.uses_carnet()).collect();
    // The plain router shows what many routes cost in the kernel without carnet.
    let mut worlds = Vec::new();
    for routes in plan.binding_counts.iter().copied() {
        worlds.push((routes, build_plain_network(routes)?));
    }
    for what in PACKET_KINDS.into_iter().filter(|what| !what.from_mobile_network) {
        for size in plan.packet_sizes_with_bindings.iter().copied() {
            figures.extend(measure_with_binding_count(DataPath::Plain, &worlds, what, size, plan)?);
        }
    }
    drop(worlds);
    console::print_step("plain: as many routes");
    for path in paths {
        let mut worlds = Vec::new();
        for bindings in plan.binding_counts.iter().copied() {
            let (network, start) = build_carnet_network(path, bindings, programs)
                .with_context(|| format!("a home agent with {bindings} bindings, path {}", path.name()))?;
            console::print_step(&format!(
                "{}: {bindings} bindings, ready after {:.1} s, {:.0} MiB",
                path.name(),
                start.ready_s,
                start.memory_mib
            ));
            starts.push(start);
            worlds.push((bindings, network));
        }
        for what in PACKET_KINDS {
            for size in plan.packet_sizes_with_bindings.iter().copied() {
                figures.extend(measure_with_binding_count(path, &worlds, what, size, plan)?);
            }
        }
        for (_, mut network) in worlds {
            for daemon in &mut network.daemons {
                daemon.send_signal(Signal::SIGTERM);
                // Kill the process after two seconds, because removing its 100,000 routes would take long.
                daemon.wait_at_most(2 * SECOND);
            }
        }
        bed.check_running()?;
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_binding_owns_the_destination_of_its_packets() {
        assert_eq!(mobile_network_prefix(0x0001_86a0), "2001:dba:1:86a0::/64");
        let address = Ipv6Addr::from(address_with_constant_sum(MOBILE_NETWORKS_HIGH_BITS, 0x0001_86a0));
        assert!(address.to_string().starts_with("2001:dba:1:86a0:"), "{address}");
        assert_eq!(home_address(99_999).to_string(), "2001:db8:1::1:1:869f");
    }

    #[test]
    fn random_choice_reaches_every_binding() {
        let mut dice = RandomNumbers(1);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[dice.next_below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
