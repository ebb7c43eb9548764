//! Builds and holds the networks (worlds) of all paths of a run.

use anyhow::bail;
use nix::sys::signal::Signal;

use super::cores::Cores;
use super::figures::PathFigure;
use super::packets::Part;
use super::path::Path;
use super::world::{Programs, World};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::{clock, console};

/// The networks (worlds) in which the benchmark measures one data path.
#[derive(Debug)]
struct PathWorlds {
    path: Path,
    /// World in which both routers use the path.
    both: World,
    /// Worlds in which only the mobile router, or only the home agent, uses the path. In these worlds the
    /// other router uses the slow path, so that a sink can use its interfaces. The sink is an XDP program,
    /// and an interface can have only one. `None` for paths without XDP, which need no separate worlds.
    alone: Option<[World; 2]>,
}

/// The networks (worlds) of all data paths that the run measures.
#[derive(Debug)]
pub struct Testbeds {
    lanes: Vec<PathWorlds>,
}

impl Testbeds {
    /// Builds a world for each path that this machine supports. Adds each wanted path to `told`, and for an
    /// unsupported path the reason.
    pub fn build(
        wanted: &[Path],
        programs: &Programs,
        told: &mut Vec<PathFigure>,
    ) -> anyhow::Result<Testbeds> {
        let mut bed = Testbeds { lanes: Vec::new() };
        for path in wanted.iter().copied() {
            let missing = match PathWorlds::build(path, programs) {
                Ok(lane) => {
                    bed.lanes.push(lane);
                    None
                }
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if path == Path::Plain => return Err(error),
                Err(error) => Some(reason(&error)),
            };
            match &missing {
                None => console::step(&format!("{}: {}", path.name(), path.description())),
                Some(why) => console::step(&format!("{}: not here: {why}", path.name())),
            }
            told.push(PathFigure { path, about: path.description().into(), missing });
        }
        Ok(bed)
    }

    /// Returns the world of each path in which to measure a part of the network.
    pub fn worlds(&self, part: Part) -> impl Iterator<Item = (Path, &World)> {
        self.lanes.iter().map(move |lane| {
            let world = match (part, &lane.alone) {
                (Part::Router, Some([world, _])) | (Part::Agent, Some([_, world])) => world,
                _ => &lane.both,
            };
            (lane.path, world)
        })
    }

    /// Returns the paths that this machine supports.
    pub fn paths(&self) -> impl Iterator<Item = Path> {
        self.lanes.iter().map(|lane| lane.path)
    }

    /// Puts the stations onto the measuring core, or lets them run anywhere.
    pub fn pin(&self, cores: &Cores, pinned: bool) -> anyhow::Result<()> {
        for daemon in self.all().flat_map(|world| &world.daemons) {
            cores.move_process(daemon.id(), pinned)?;
        }
        Ok(())
    }

    /// Fails if the user stops the run or a station has ended.
    pub fn check_running(&self) -> anyhow::Result<()> {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        for world in self.all() {
            for station in &world.stations {
                if !station.is_ready() {
                    bail!(
                        "the station carnet in node {} no longer answers API requests; its log has the \
                         reason",
                        station.node
                    );
                }
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &World> {
        self.lanes.iter().flat_map(|lane| std::iter::once(&lane.both).chain(lane.alone.iter().flatten()))
    }

    /// Stops the stations in order.
    pub fn stop(mut self) {
        let mut daemons: Vec<_> = self
            .lanes
            .iter_mut()
            .flat_map(|lane| std::iter::once(&mut lane.both).chain(lane.alone.iter_mut().flatten()))
            .flat_map(|world| &mut world.daemons)
            .collect();
        for daemon in &mut daemons {
            daemon.signal(Signal::SIGTERM);
        }
        for daemon in &mut daemons {
            daemon.wait(10 * clock::SECOND);
        }
    }
}

impl PathWorlds {
    fn build(path: Path, programs: &Programs) -> anyhow::Result<PathWorlds> {
        let name = path.name();
        let both = World::build(name, path, path, programs)?;
        let alone = match path {
            Path::Xdp => Some([
                World::build(&format!("{name}-mr"), path, Path::Tun, programs)?,
                World::build(&format!("{name}-ha"), Path::Tun, path, programs)?,
            ]),
            _ => None,
        };
        Ok(PathWorlds { path, both, alone })
    }
}

/// Returns the last line of a station's log in the error's text, as a short reason. Without such a line,
/// returns the first line of the text.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().filter_map(|line| line.trim().strip_prefix("| ")).next_back();
    line.unwrap_or_else(|| text.lines().next().unwrap_or("")).trim().to_owned()
}
