//! The worlds of a run.

use anyhow::bail;
use nix::sys::signal::Signal;

use super::cores::Cores;
use super::figures::PathFigure;
use super::packets::Part;
use super::path::Path;
use super::world::{Programs, World};
use crate::isolate::{Interrupted, stopping};
use crate::{clock, console};

/// A path's worlds.
#[derive(Debug)]
struct Lane {
    path: Path,
    /// Both routers have the path.
    both: World,
    /// Only the mobile router, or only the home agent has it; the other has the slow path, which leaves its
    /// interfaces to a sink. `None` where the first world does for this too: XDP knows one program for each
    /// interface, and the sink is one.
    alone: Option<[World; 2]>,
}

/// All worlds.
#[derive(Debug)]
pub struct Bed {
    lanes: Vec<Lane>,
}

impl Bed {
    /// Builds a world for each path that can be had; says why another cannot.
    pub fn build(wanted: &[Path], programs: &Programs, told: &mut Vec<PathFigure>) -> anyhow::Result<Bed> {
        let mut bed = Bed { lanes: Vec::new() };
        for path in wanted.iter().copied() {
            let missing = match Lane::build(path, programs) {
                Ok(lane) => {
                    bed.lanes.push(lane);
                    None
                }
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if path == Path::Plain => return Err(error),
                Err(error) => Some(reason(&error)),
            };
            match &missing {
                None => console::step(&format!("{}: {}", path.name(), path.about())),
                Some(why) => console::step(&format!("{}: not here: {why}", path.name())),
            }
            told.push(PathFigure { path, about: path.about().into(), missing });
        }
        Ok(bed)
    }

    /// The worlds of a part of the network, by path.
    pub fn worlds(&self, part: Part) -> impl Iterator<Item = (Path, &World)> {
        self.lanes.iter().map(move |lane| {
            let world = match (part, &lane.alone) {
                (Part::Router, Some([world, _])) | (Part::Agent, Some([_, world])) => world,
                _ => &lane.both,
            };
            (lane.path, world)
        })
    }

    /// The paths that can be had.
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

    /// Fails when the run is to stop, or when a station has ended.
    pub fn check(&self) -> anyhow::Result<()> {
        if stopping() {
            return Err(Interrupted.into());
        }
        for world in self.all() {
            for station in &world.stations {
                if !station.is_ready() {
                    bail!("carnet in node {} answers no longer; see its log", station.node);
                }
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &World> {
        self.lanes.iter().flat_map(|lane| std::iter::once(&lane.both).chain(lane.alone.iter().flatten()))
    }

    /// Ends the stations in good order.
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

impl Lane {
    fn build(path: Path, programs: &Programs) -> anyhow::Result<Lane> {
        let name = path.name();
        let both = World::build(name, path, path, programs)?;
        let alone = match path {
            Path::Xdp => Some([
                World::build(&format!("{name}-mr"), path, Path::Tun, programs)?,
                World::build(&format!("{name}-ha"), Path::Tun, path, programs)?,
            ]),
            _ => None,
        };
        Ok(Lane { path, both, alone })
    }
}

/// The line of a station's log, if there is one, that says why it could not start.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().filter_map(|line| line.trim().strip_prefix("| ")).next_back();
    line.unwrap_or_else(|| text.lines().next().unwrap_or("")).trim().to_owned()
}
