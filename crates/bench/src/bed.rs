//! Builds and holds the test networks of all data paths of a run.

use anyhow::bail;
use nix::sys::signal::Signal;

use super::cores::Cores;
use super::figures::PathFigure;
use super::packets::RoutersOnPath;
use super::path::DataPath;
use super::world::{Programs, TestNetwork};
use carnet_testbed::isolate::{Interrupted, has_to_stop};
use carnet_testbed::{clock, console};

/// The test networks in which the benchmark measures one data path.
#[derive(Debug)]
struct NetworksOfPath {
    path: DataPath,
    /// Test network in which both routers use the data path.
    path_at_both_ends: TestNetwork,
    /// Test networks in which only the mobile router, or only the home agent, uses the data path. In these
    /// networks the other router uses the slow path, so that a sink can use its interfaces. The sink is an
    /// XDP program, and an interface can have only one. `None` for paths without XDP, which need no separate
    /// networks.
    path_at_one_end: Option<[TestNetwork; 2]>,
}

/// The test networks of all data paths that the run measures.
#[derive(Debug)]
pub struct Testbeds {
    networks_of_paths: Vec<NetworksOfPath>,
}

impl Testbeds {
    /// Builds a test network for each path that this machine supports. Adds each wanted path to `told`, and
    /// for an unsupported path the reason.
    pub fn build(
        wanted: &[DataPath],
        programs: &Programs,
        told: &mut Vec<PathFigure>,
    ) -> anyhow::Result<Testbeds> {
        let mut bed = Testbeds { networks_of_paths: Vec::new() };
        for path in wanted.iter().copied() {
            let missing = match NetworksOfPath::build(path, programs) {
                Ok(lane) => {
                    bed.networks_of_paths.push(lane);
                    None
                }
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if path == DataPath::Plain => return Err(error),
                Err(error) => Some(root_cause(&error)),
            };
            match &missing {
                None => console::print_step(&format!("{}: {}", path.name(), path.path_description())),
                Some(why) => console::print_step(&format!("{}: not here: {why}", path.name())),
            }
            told.push(PathFigure {
                path,
                description: path.path_description().into(),
                reason_not_measured: missing,
            });
        }
        Ok(bed)
    }

    /// Returns, for each data path, the test network in which the benchmark measures these routers.
    pub fn networks_for(&self, part: RoutersOnPath) -> impl Iterator<Item = (DataPath, &TestNetwork)> {
        self.networks_of_paths.iter().map(move |lane| {
            let network = match (part, &lane.path_at_one_end) {
                (RoutersOnPath::Router, Some([network, _])) | (RoutersOnPath::Agent, Some([_, network])) => {
                    network
                }
                _ => &lane.path_at_both_ends,
            };
            (lane.path, network)
        })
    }

    /// Returns the paths that this machine supports.
    pub fn supported_paths(&self) -> impl Iterator<Item = DataPath> {
        self.networks_of_paths.iter().map(|lane| lane.path)
    }

    /// Puts the stations onto the measuring core, or lets them run anywhere.
    pub fn pin_daemons(&self, cores: &Cores, pinned: bool) -> anyhow::Result<()> {
        for daemon in self.all_networks().flat_map(|network| &network.daemons) {
            cores.set_process_pinning(daemon.process_id(), pinned)?;
        }
        Ok(())
    }

    /// Fails if the user stops the run or a station has ended.
    pub fn check_running(&self) -> anyhow::Result<()> {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        for network in self.all_networks() {
            for station in &network.stations {
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

    fn all_networks(&self) -> impl Iterator<Item = &TestNetwork> {
        self.networks_of_paths.iter().flat_map(|lane| {
            std::iter::once(&lane.path_at_both_ends).chain(lane.path_at_one_end.iter().flatten())
        })
    }

    /// Sends SIGTERM to all stations of the test networks, and waits at most 10 s for the end of each.
    pub fn stop_stations(mut self) {
        let mut daemons: Vec<_> = self
            .networks_of_paths
            .iter_mut()
            .flat_map(|lane| {
                std::iter::once(&mut lane.path_at_both_ends).chain(lane.path_at_one_end.iter_mut().flatten())
            })
            .flat_map(|network| &mut network.daemons)
            .collect();
        for daemon in &mut daemons {
            daemon.send_signal(Signal::SIGTERM);
        }
        for daemon in &mut daemons {
            daemon.wait_at_most(10 * clock::SECOND);
        }
    }
}

impl NetworksOfPath {
    fn build(path: DataPath, programs: &Programs) -> anyhow::Result<NetworksOfPath> {
        let name = path.name();
        let both = TestNetwork::build_network(name, path, path, programs)?;
        let alone = match path {
            DataPath::Xdp => Some([
                TestNetwork::build_network(&format!("{name}-mr"), path, DataPath::Tun, programs)?,
                TestNetwork::build_network(&format!("{name}-ha"), DataPath::Tun, path, programs)?,
            ]),
            _ => None,
        };
        Ok(NetworksOfPath { path, path_at_both_ends: both, path_at_one_end: alone })
    }
}

/// Returns the last line of a station's log in the error's text, as a short reason. Without such a line,
/// returns the first line of the text.
fn root_cause(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().filter_map(|line| line.trim().strip_prefix("| ")).next_back();
    line.unwrap_or_else(|| text.lines().next().unwrap_or("")).trim().to_owned()
}
