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
use super::flood::flood;
use super::packet::{Frame, balanced};
use super::path::Path;
use super::sender::{BATCH, Sender};
use super::sink::Sink;
use super::world::{
    CARE_OF, CN, HOME_AGENT, Programs, World, WorldInterface, link_addresses, station_config,
};
use super::{Effort, Testbeds};
use carnet_testbed::clock::{self, MILLISECOND, SECOND, monotonic};
use carnet_testbed::isolate::{Interrupted, RUN, has_to_stop};
use carnet_testbed::process::{in_node, output};
use carnet_testbed::{console, topology};

/// The first half of all mobile network prefixes, `2001:dba::/32`.
const MOBILE: u32 = 0x2001_0dba;
/// The first half of all care-of addresses, `2001:dbb::/32`.
const CARE_OF_ALL: u32 = 0x2001_0dbb;
/// Lifetime of the bindings in seconds.
const LIFETIME: u64 = 72 * 3600;
/// Number of packets that are sent to each binding before the measured rounds.
const VISITS: u32 = 2;
/// Maximum duration of a start in seconds.
const PATIENCE: u64 = 300;

const C0: WorldInterface = WorldInterface { node: "cn", interface: "c0" };
const E0: WorldInterface = WorldInterface { node: "mr", interface: "e0" };

fn prefix(number: u32) -> String {
    let bits = u128::from(MOBILE) << 96 | u128::from(number) << 64;
    format!("{}/64", Ipv6Addr::from(bits))
}

fn home_address(number: u32) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 1, (number >> 16) as u16, number as u16)
}

/// Returns the config of a home agent with `bindings` routers, whose state file is in `folder`.
fn config(name: &str, path: Path, bindings: u32, folder: &std::path::Path) -> String {
    let mut text = station_config(name, path).replacen(
        "[dataplane]",
        &format!("state_dir = \"{}\"\n[dataplane]", folder.display()),
        1,
    );
    let _ = write!(
        text,
        "[home_agent]\naddress = \"{HOME_AGENT}\"\nhome_prefix = \"2001:db8:1::/64\"\nmax_lifetime = \
         \"72h\"\n"
    );
    for number in 0..bindings {
        let _ = write!(
            text,
            "[[home_agent.mobile_router]]\nhome_address = \"{}\"\nprefixes = [\"{}\"]\n\
             auth = {{ spi = 300, key = \"000102030405060708090a0b0c0d0e0f\" }}\n",
            home_address(number),
            prefix(number)
        );
    }
    text
}

/// Returns the content of the home agent's state file with this number of bindings.
fn state(bindings: u32) -> String {
    let expires = clock::realtime() + LIFETIME * SECOND;
    let one = |number: u32| {
        json!({"home_address": home_address(number), "sequence": 1, "timestamp": null, "registration": {
            "care_of_address": Ipv6Addr::from(balanced(CARE_OF_ALL, number)),
            "mobile_router": true, "link_local": false, "prefixes": [prefix(number)],
            "lifetime_s": LIFETIME, "expires": expires}})
    };
    json!({"home_agent": (0..bindings).map(one).collect::<Vec<_>>()}).to_string()
}

/// Builds a world with a plain router of `routes` routes in place of the home agent.
fn build_plain(routes: u32) -> anyhow::Result<World> {
    let name = format!("{}-{routes}", Path::Plain.name());
    let world = World { name, stations: Vec::new(), daemons: Vec::new() };
    world.links()?;
    let mut commands = String::new();
    for number in 0..routes {
        let _ = writeln!(commands, "route add {} via 2001:db8:f0::2", prefix(number));
    }
    let node = world.node("ha");
    topology::batch(Some(&node), &commands)?;
    output(in_node(&node, "sh").args(["-ec", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"]))?;
    Ok(world)
}

/// Builds a world whose home agent has `bindings` bindings.
fn build(path: Path, bindings: u32, programs: &Programs) -> anyhow::Result<(World, StartFigure)> {
    let name = format!("{}-{bindings}", path.name());
    let mut world = World { name: name.clone(), stations: Vec::new(), daemons: Vec::new() };
    world.links()?;
    topology::batch(Some(&world.node("ha")), "route add 2001:dbb::/32 via 2001:db8:f0::2\n")?;
    topology::batch(Some(&world.node("cn")), "route add default via 2001:db8:c::1\n")?;
    let folder = std::path::Path::new(RUN).join(format!("state-{name}"));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let station = world.node("ha");
    std::fs::write(folder.join(format!("{station}.json")), state(bindings))
        .context("cannot write a state")?;
    let start = monotonic();
    world.start("ha", &config(&station, path, bindings, &folder), programs)?;
    let agent = world.stations.last().context("bug: the process that was just started is missing")?;
    while !agent.is_ready() {
        world.daemons.iter_mut().try_for_each(|daemon| daemon.check_running())?;
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        if monotonic() - start > PATIENCE * SECOND {
            bail!("the home agent's process is not ready {PATIENCE} s after its start");
        }
        clock::sleep(5 * MILLISECOND);
    }
    let ready_s = (monotonic() - start) as f64 / 1e9;
    let shown = agent.show("bindings")?;
    let found = shown.as_array().map_or(0, Vec::len);
    ensure!(
        found == bindings as usize,
        "the home agent holds {found} bindings, expected the {bindings} that are registered"
    );
    let memory_mib =
        memory(world.daemons.last().context("bug: the process that was just started is missing")?.id())
            .unwrap_or(0.0);
    Ok((world, StartFigure { path, bindings, ready_s, memory_mib }))
}

/// Waits until the stations of a world are idle, at most 20 s.
fn settle(world: &World) -> anyhow::Result<()> {
    let until = monotonic() + 20 * SECOND;
    for daemon in &world.daemons {
        let mut before = -1.0;
        loop {
            let used = process_seconds(daemon.id())?;
            // The stations are idle if they used at most one tick of 10 ms.
            if used - before < 0.015 || monotonic() > until {
                break;
            }
            before = used;
            clock::sleep(300 * MILLISECOND);
        }
    }
    Ok(())
}

/// Returns the resident memory of a process in MiB; `None` if the process has ended.
fn memory(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Generator of pseudo-random numbers (xorshift64*).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, limit: u32) -> u32 {
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
    words: &'static str,
    from: bool,
    random: bool,
}

const WHATS: [PacketKind; 4] = [
    PacketKind { words: "to one", from: false, random: false },
    PacketKind { words: "to random ones", from: false, random: true },
    PacketKind { words: "from one", from: true, random: false },
    PacketKind { words: "from random ones", from: true, random: true },
];

struct PathMeasurement {
    bindings: u32,
    sender: Sender,
    sink: Sink,
    frames: Vec<Frame>,
    rates: Vec<f64>,
    lost: u64,
}

fn one(
    path: Path,
    worlds: &[(u32, World)],
    what: PacketKind,
    size: usize,
    effort: &Effort,
) -> anyhow::Result<Vec<BindingsFigure>> {
    let (source, end) = if what.from { (E0, C0) } else { (C0, E0) };
    let node = Ipv6Addr::from(balanced(MOBILE, 0));
    let frame = match what.from {
        true => Frame::new(
            link_addresses(source),
            Some((CARE_OF.parse()?, HOME_AGENT.parse()?)),
            (node, CN.parse()?),
            size,
        ),
        false => Frame::new(link_addresses(source), None, (CN.parse()?, node), size),
    };
    let mut lanes = Vec::new();
    for (bindings, world) in worlds {
        lanes.push(PathMeasurement {
            bindings: *bindings,
            sender: Sender::one_by_one(world, source)?,
            sink: Sink::counting_at(world, end)?,
            frames: vec![frame.clone(); BATCH],
            rates: Vec::new(),
            lost: 0,
        });
    }
    // Wait until the stations are idle: attaching a sink changes an interface, and a home agent then checks
    // all its routes.
    for (_, world) in worlds {
        settle(world)?;
    }
    let set = |frame: &mut Frame, number: u32| {
        frame.set_inner(!what.from, balanced(MOBILE, number));
        if what.from {
            frame.set_outer_source(balanced(CARE_OF_ALL, number));
        }
    };
    for lane in &mut lanes {
        let PathMeasurement { bindings, sender, sink, frames, .. } = lane;
        let mut next = 0;
        while what.random && next < VISITS * *bindings {
            let mut prepare = |frames: &mut [Frame], _: u64| {
                for frame in frames {
                    set(frame, next % *bindings);
                    next += 1;
                }
            };
            flood(sender, sink, frames, 5 * MILLISECOND, &mut prepare)?;
        }
    }
    let mut dice = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..effort.rounds {
        for turn in 0..lanes.len() {
            let at = (turn + round) % lanes.len();
            let lane = &mut lanes[at];
            let bindings = lane.bindings;
            // Draw a random number and write it into each frame even if all packets go to one binding. So the
            // sender's cost is the same in all cases.
            let mut prepare = |frames: &mut [Frame], _: u64| {
                for frame in frames {
                    let drawn = dice.below(bindings);
                    let number = if what.random { drawn } else { 0 };
                    set(frame, number);
                }
            };
            let (sender, sink, frames) = (&mut lane.sender, &lane.sink, &mut lane.frames);
            flood(sender, sink, frames, 5 * MILLISECOND, &mut prepare)?;
            let result = flood(sender, sink, frames, effort.bindings_flood, &mut prepare)?;
            lane.rates.push(result.rate());
            lane.lost += result.lost();
        }
    }
    let base = lanes.iter().find(|lane| lane.bindings == 1).map(|lane| Series::of(lane.rates.clone()));
    let figure = |lane: PathMeasurement| {
        let rate = Series::of(lane.rates);
        BindingsFigure {
            path,
            what: what.words.into(),
            size,
            bindings: lane.bindings,
            to_one: base.as_ref().and_then(|base| rate.ratio(base)),
            rate,
            lost: lane.lost,
        }
    };
    Ok(lanes.into_iter().map(figure).collect())
}

/// Measures all paths of the bed that use carnet.
pub fn measure(
    bed: &Testbeds,
    effort: &Effort,
    programs: &Programs,
    starts: &mut Vec<StartFigure>,
) -> anyhow::Result<Vec<BindingsFigure>> {
    let mut figures = Vec::new();
    let paths: Vec<Path> = bed.paths().filter(|path| path.is_carnet()).collect();
    // The plain router shows what many routes cost in the kernel without carnet.
    let mut worlds = Vec::new();
    for routes in effort.bindings.iter().copied() {
        worlds.push((routes, build_plain(routes)?));
    }
    for what in WHATS.into_iter().filter(|what| !what.from) {
        for size in effort.bindings_sizes.iter().copied() {
            figures.extend(one(Path::Plain, &worlds, what, size, effort)?);
        }
    }
    drop(worlds);
    console::step("plain: as many routes");
    for path in paths {
        let mut worlds = Vec::new();
        for bindings in effort.bindings.iter().copied() {
            let (world, start) = build(path, bindings, programs)
                .with_context(|| format!("a home agent with {bindings} bindings, path {}", path.name()))?;
            console::step(&format!(
                "{}: {bindings} bindings, ready after {:.1} s, {:.0} MiB",
                path.name(),
                start.ready_s,
                start.memory_mib
            ));
            starts.push(start);
            worlds.push((bindings, world));
        }
        for what in WHATS {
            for size in effort.bindings_sizes.iter().copied() {
                figures.extend(one(path, &worlds, what, size, effort)?);
            }
        }
        for (_, mut world) in worlds {
            for daemon in &mut world.daemons {
                daemon.signal(Signal::SIGTERM);
                // Kill the process after two seconds, because removing its 100,000 routes would take long.
                daemon.wait(2 * SECOND);
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
        assert_eq!(prefix(0x0001_86a0), "2001:dba:1:86a0::/64");
        let address = Ipv6Addr::from(balanced(MOBILE, 0x0001_86a0));
        assert!(address.to_string().starts_with("2001:dba:1:86a0:"), "{address}");
        assert_eq!(home_address(99_999).to_string(), "2001:db8:1::1:1:869f");
    }

    #[test]
    fn random_choice_reaches_every_binding() {
        let mut dice = RandomNumbers(1);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[dice.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
