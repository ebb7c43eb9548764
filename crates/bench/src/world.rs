//! Builds the test networks of the benchmark. Each data path has a network with equal nodes and links.
//!
//! ```text
//!   mnn m0 ---- i0 mr e0 ---- f0 ha h0 ---- c0 cn
//!                     e1 ---- f1
//!   2001:db8:a::/64   2001:db8:f0::/64   2001:db8:c::/64
//!                     2001:db8:f1::/64
//! ```
//!
//! The hosts also have the IPv4 addresses `203.0.113.2` and `198.51.100.2`. carnet carries this IPv4 inside
//! the same tunnel. In the network of plain forwarding, the link between the routers has IPv4 addresses, too.
//! Both addresses of the hosts are public. Between a private and a public address the home agent would leave
//! packets to the kernel, because they may need NAT.
//!
//! Links are veth pairs between network namespaces `NAME.mnn`, `NAME.mr`, `NAME.ha` and `NAME.cn`, where
//! `NAME` is the name of the test network. All addresses and neighbours are fixed, so the links carry only
//! the measured packets during a measurement. In a network of carnet, `mr` and `ha` each run `carnet run`,
//! and the mobile router is registered over `e0`. The network of plain forwarding has no tunnel. In the
//! network of the kernel's own tunnel, segment routing carries IPv6 in IPv6 (RFC 8986): `H.Encaps.Red` with
//! one segment, which leaves no routing header, and `End.DT6`.

use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::sched::{CloneFlags, setns};

use super::path::DataPath;
use carnet_testbed::process::{BackgroundProgram, command_in_node, run_for_output, wait_until};
use carnet_testbed::station::Station;
use carnet_testbed::{isolate, tools, topology};

/// Address of the host in the mobile network.
pub const MOBILE_HOST_ADDRESS: &str = "2001:db8:a::2";
/// Address of the correspondent node.
pub const CORRESPONDENT_ADDRESS: &str = "2001:db8:c::2";
/// Prefix of the mobile network.
pub const NETWORK_ON_BOARD: &str = "2001:db8:a::/64";
/// Prefix of the correspondent's network.
pub const NETWORK_OF_CORRESPONDENT: &str = "2001:db8:c::/64";
/// Address of the home agent.
pub const HOME_AGENT_ADDRESS: &str = "2001:db8:1::1";
/// Care-of address on `e0`.
pub const CARE_OF_ADDRESS: &str = "2001:db8:f0::2";
/// Segments of the kernel's tunnel: the home agent's end and the mobile router's end.
pub const SEGMENT_ADDRESSES: [&str; 2] = ["2001:db8:5::1", "2001:db8:5::2"];

/// IPv4 address of the host in the mobile network.
pub const MOBILE_HOST_IPV4_ADDRESS: &str = "203.0.113.2";
/// IPv4 address of the correspondent node.
pub const CORRESPONDENT_IPV4_ADDRESS: &str = "198.51.100.2";
/// IPv4 prefix of the mobile network.
const IPV4_PREFIX: &str = "203.0.113.0/24";
/// IPv4 addresses of the ends of [`NETWORK_LINKS`], in the same order. Only the network of plain forwarding
/// has those of the second link. The third link has none.
const IPV4_LINK_ADDRESSES: [[&str; 2]; 3] = [
    [MOBILE_HOST_IPV4_ADDRESS, "203.0.113.1"],
    ["192.0.2.2", "192.0.2.1"],
    ["198.51.100.1", CORRESPONDENT_IPV4_ADDRESS],
];
/// Positions in [`NETWORK_LINKS`] of the links with the addresses of [`IPV4_LINK_ADDRESSES`].
const INDICES_OF_IPV4_LINKS: [usize; 3] = [0, 1, 3];

/// The links: node, interface and address of each end.
const NETWORK_LINKS: [[(&str, &str, &str); 2]; 4] = [
    [("mnn", "m0", MOBILE_HOST_ADDRESS), ("mr", "i0", "2001:db8:a::1")],
    [("mr", "e0", CARE_OF_ADDRESS), ("ha", "f0", "2001:db8:f0::1")],
    [("mr", "e1", "2001:db8:f1::2"), ("ha", "f1", "2001:db8:f1::1")],
    [("ha", "h0", "2001:db8:c::1"), ("cn", "c0", CORRESPONDENT_ADDRESS)],
];
/// The hosts and their interfaces.
pub const HOST_INTERFACES: [(&str, &str); 2] = [("mnn", "m0"), ("cn", "c0")];
/// Commands that set the default routes of a mobile router.
const ROUTER_DEFAULT_ROUTES: &str = "route add default via 2001:db8:f0::1 dev e0 metric 100\n\
                       route add default via 2001:db8:f1::1 dev e1 metric 200\n";
const NODE_NAMES: [&str; 4] = ["mnn", "mr", "ha", "cn"];

/// An interface of a test network at which the benchmark sends or receives packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInterface {
    /// Node in the test network: `mnn`, `mr`, `ha` or `cn`.
    pub node: &'static str,
    /// Interface of the node.
    pub interface: &'static str,
}

/// Returns the hardware addresses of an interface and of its peer.
pub fn link_addresses(interface: NodeInterface) -> ([u8; 6], [u8; 6]) {
    let mac = |link: usize, end: usize| [2, 0, 0, 0, link as u8 + 1, end as u8 + 1];
    for (l, link) in NETWORK_LINKS.iter().enumerate() {
        let end =
            link.iter().position(|(node, name, _)| (*node, *name) == (interface.node, interface.interface));
        if let Some(end) = end {
            return (mac(l, end), mac(l, 1 - end));
        }
    }
    // No caller passes another interface, so this value is not used.
    ([0; 6], [0; 6])
}

/// Returns the text of a hardware address.
fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// Calls `action` in the network namespace of a node, in a separate thread.
pub fn run_in_node<T: Send>(
    node: &str,
    action: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let path = format!("/run/netns/{node}");
    let namespace = std::fs::File::open(&path).with_context(|| format!("cannot open {path}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("cannot enter node {node}"))?;
            action()
        });
        thread
            .join()
            .map_err(|_| anyhow!("bug: a benchmark thread in the namespace of node {node} panicked"))?
    })
}

/// The carnet program and the folder of the logs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The carnet program.
    pub carnet_program: PathBuf,
    /// Folder for logs.
    pub log_folder: PathBuf,
}

/// A network of the benchmark with its programs.
#[derive(Debug)]
pub struct TestNetwork {
    /// Name of the test network. The names of its nodes begin with it.
    pub name: String,
    /// The mobile router and the home agent, if they run carnet.
    pub stations: Vec<Station>,
    /// Processes of [`Self::stations`], in the same order.
    pub daemons: Vec<BackgroundProgram>,
}

impl TestNetwork {
    /// Builds the network. `mr` and `ha` are the data paths of the mobile router and the home agent.
    ///
    /// # Errors
    /// Fails also if this kernel does not support a path.
    pub fn build_network(
        name: &str,
        mr: DataPath,
        ha: DataPath,
        programs: &Programs,
    ) -> anyhow::Result<TestNetwork> {
        let mut network = TestNetwork { name: name.into(), stations: Vec::new(), daemons: Vec::new() };
        network.create_links()?;
        network.add_routes(mr)?;
        network.configure_ipv4(mr)?;
        if mr == DataPath::Xdp {
            // Turn off checksum offload. A veth may leave a checksum unfinished and note this in the packet,
            // and a redirect by XDP loses the note. A driver of real hardware never delivers such a packet.
            for (role, interface) in HOST_INTERFACES {
                let mut ethtool =
                    command_in_node(&network.node_name(role), tools::path_of_program("ethtool"));
                run_for_output(ethtool.args(["-K", interface, "tx", "off"]))?;
            }
        }
        if mr.uses_carnet() {
            let configs = [("ha", agent_config(name, ha)), ("mr", router_config(name, mr))];
            for (node, config) in configs {
                network.start_station(node, &config, programs)?;
            }
            for station in &network.stations {
                let what = format!("a registered binding at {}", station.node);
                wait_until(&what, 30, &mut network.daemons, || {
                    Ok(station.is_ready() && station.has_registered_bindings(1).unwrap_or(false))
                })?;
            }
            for (station, path) in network.stations.iter().zip([ha, mr]) {
                check_station_path(station, path)?;
            }
        }
        Ok(network)
    }

    /// Returns the number of packets that the TUN devices of both routers have sent and received.
    pub fn packets_by_tun(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for role in ["mr", "ha"] {
            let shown =
                run_for_output(command_in_node(&self.node_name(role), "cat").arg("/proc/self/net/dev"))?;
            let line = shown.lines().find_map(|line| line.trim().strip_prefix("carnet0:"));
            // The second field of each direction is the number of packets.
            let fields: Vec<u64> =
                line.unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
            sum += [1, 9].iter().filter_map(|at| fields.get(*at)).sum::<u64>();
        }
        Ok(sum)
    }

    /// Returns the name of the node with this role in this test network.
    pub fn node_name(&self, role: &str) -> String {
        format!("{}.{role}", self.name)
    }

    /// Starts a station in a node.
    pub fn start_station(&mut self, role: &str, config: &str, programs: &Programs) -> anyhow::Result<()> {
        let node = self.node_name(role);
        let file = std::path::Path::new(isolate::RUN_DIRECTORY).join(format!("{node}.toml"));
        std::fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        let log = programs.log_folder.join(format!("{node}.log"));
        let (station, daemon) = Station::start(&programs.carnet_program, &node, &file, false, &log)?;
        self.stations.push(station);
        self.daemons.push(daemon);
        Ok(())
    }

    /// Creates nodes, links, addresses and neighbours.
    pub fn create_links(&self) -> anyhow::Result<()> {
        let mut commands = String::from("link set lo up\n");
        for role in NODE_NAMES {
            let _ = writeln!(commands, "netns add {}", self.node_name(role));
        }
        topology::run_ip_batch(None, &commands)?;
        for role in NODE_NAMES {
            // Turn duplicate address detection off, so that an address is usable at once.
            run_for_output(command_in_node(&self.node_name(role), "sh").args([
                "-ec",
                "cd /proc/sys/net/ipv6/conf
                 for key in default all; do echo 0 > $key/accept_dad; echo 0 > $key/dad_transmits; done",
            ]))?;
        }
        let mut commands = String::new();
        for link in NETWORK_LINKS {
            let [near, far] = link.map(|(role, interface, _)| {
                let (own, _) = link_addresses(NodeInterface { node: role, interface });
                (interface, mac_text(own), self.node_name(role))
            });
            let _ = writeln!(
                commands,
                "link add {} address {} netns {} type veth peer name {} address {} netns {}",
                near.0, near.1, near.2, far.0, far.1, far.2
            );
        }
        topology::run_ip_batch(None, &commands)?;
        for role in NODE_NAMES {
            let mut commands = String::from("link set lo up\n");
            for link in NETWORK_LINKS {
                for (end, (node, interface, address)) in link.into_iter().enumerate() {
                    if node != role {
                        continue;
                    }
                    let (_, peer) = link_addresses(NodeInterface { node, interface });
                    let _ = writeln!(commands, "link set {interface} up");
                    let _ = writeln!(commands, "addr add {address}/64 dev {interface} nodad");
                    let _ = writeln!(
                        commands,
                        "neigh add {} lladdr {} dev {interface} nud permanent",
                        link[1 - end].2,
                        mac_text(peer)
                    );
                }
            }
            topology::run_ip_batch(Some(&self.node_name(role)), &commands)?;
        }
        // Turn GRO on. A veth interface accepts packets that XDP redirects to it only if NAPI runs on its
        // peer, which GRO switches on.
        for (role, interface) in HOST_INTERFACES {
            run_for_output(
                command_in_node(&self.node_name(role), tools::path_of_program("ethtool"))
                    .args(["-K", interface, "gro", "on"]),
            )?;
        }
        Ok(())
    }

    /// Sets the default routes of the hosts, and of a mobile router over its uplinks.
    pub fn add_uplink_routes(&self) -> anyhow::Result<()> {
        self.configure_hosts()?;
        topology::run_ip_batch(Some(&self.node_name("mr")), ROUTER_DEFAULT_ROUTES)
    }

    /// Sets IPv4 addresses, neighbours and routes.
    fn configure_ipv4(&self, path: DataPath) -> anyhow::Result<()> {
        if !path.carries_ipv4() {
            return Ok(());
        }
        for role in NODE_NAMES {
            let mut commands = String::new();
            for (link, addresses) in INDICES_OF_IPV4_LINKS.iter().zip(IPV4_LINK_ADDRESSES) {
                if *link == 1 && path != DataPath::Plain {
                    continue;
                }
                for (end, (node, interface, _)) in NETWORK_LINKS[*link].into_iter().enumerate() {
                    if node == role {
                        let (_, peer) = link_addresses(NodeInterface { node, interface });
                        let _ = writeln!(
                            commands,
                            "addr add {}/24 dev {interface}\n\
                             neigh add {} lladdr {} dev {interface} nud permanent",
                            addresses[end],
                            addresses[1 - end],
                            mac_text(peer)
                        );
                    }
                }
            }
            let _ = match (role, path) {
                ("mnn", _) => writeln!(commands, "route add default via {}", IPV4_LINK_ADDRESSES[0][1]),
                ("cn", _) => writeln!(commands, "route add default via {}", IPV4_LINK_ADDRESSES[2][0]),
                ("mr", DataPath::Plain) => {
                    writeln!(commands, "route add default via {}", IPV4_LINK_ADDRESSES[1][1])
                }
                ("ha", DataPath::Plain) => {
                    writeln!(commands, "route add {IPV4_PREFIX} via {}", IPV4_LINK_ADDRESSES[1][0])
                }
                _ => Ok(()),
            };
            let node = self.node_name(role);
            topology::run_ip_batch_of_family("-4", Some(&node), &commands)?;
            if path == DataPath::Plain && ["mr", "ha"].contains(&role) {
                run_for_output(
                    command_in_node(&node, "sh").args(["-ec", "echo 1 > /proc/sys/net/ipv4/ip_forward"]),
                )?;
            }
        }
        Ok(())
    }

    fn configure_hosts(&self) -> anyhow::Result<()> {
        topology::run_ip_batch(Some(&self.node_name("mnn")), "route add default via 2001:db8:a::1\n")?;
        topology::run_ip_batch(Some(&self.node_name("cn")), "route add default via 2001:db8:c::1\n")
    }

    fn add_routes(&self, path: DataPath) -> anyhow::Result<()> {
        let (mr, ha) = (self.node_name("mr"), self.node_name("ha"));
        self.configure_hosts()?;
        if !path.uses_carnet() {
            for node in [&mr, &ha] {
                run_for_output(command_in_node(node, "sh").args([
                    "-ec",
                    "cd /proc/sys/net/ipv6/conf; echo 1 > all/forwarding
                     for one in all default e0 f0 i0 h0; do
                         [ ! -d $one ] || echo 1 > $one/seg6_enabled
                     done",
                ]))?;
            }
        }
        let (router, agent) = match path {
            DataPath::Seg6 => (
                format!(
                    "route add 2001:db8:c::/64 encap seg6 mode encap.red segs {0} dev e0\n\
                     route add {0}/128 via 2001:db8:f0::1\n\
                     route add {1}/128 encap seg6local action End.DT6 table main dev i0\n",
                    SEGMENT_ADDRESSES[0], SEGMENT_ADDRESSES[1]
                ),
                format!(
                    "route add 2001:db8:a::/64 encap seg6 mode encap.red segs {1} dev f0\n\
                     route add {1}/128 via 2001:db8:f0::2\n\
                     route add {0}/128 encap seg6local action End.DT6 table main dev h0\n",
                    SEGMENT_ADDRESSES[0], SEGMENT_ADDRESSES[1]
                ),
            ),
            DataPath::Plain => (
                "route add default via 2001:db8:f0::1\n".into(),
                "route add 2001:db8:a::/64 via 2001:db8:f0::2\n".into(),
            ),
            _ => (ROUTER_DEFAULT_ROUTES.into(), String::new()),
        };
        topology::run_ip_batch(Some(&mr), &router)?;
        if !agent.is_empty() {
            topology::run_ip_batch(Some(&ha), &agent)?;
        }
        Ok(())
    }
}

/// Fails if a station's tunnels do not use the configured path. A station uses the TUN device until its BPF
/// programs are loaded, so the function waits for that.
fn check_station_path(station: &Station, path: DataPath) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    for _ in 0..300 {
        let shown = station.show_json("tunnels")?;
        let tunnels = shown.as_array().into_iter().flatten();
        paths = tunnels.filter_map(|tunnel| tunnel["path"].as_str().map(str::to_owned)).collect();
        if !paths.is_empty() && paths.iter().all(|one| one == path.name()) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    bail!("the station in node {} uses the data path {paths:?}, expected {:?}", station.node, path.name())
}

/// Returns the tables `[station]` and `[dataplane]` of a config.
pub fn station_config(name: &str, path: DataPath) -> String {
    format!(
        "[station]\nname = \"{name}\"\nsocket = \"/run/carnet/{name}.sock\"\n\
         [dataplane]\npath = \"{}\"\n",
        path.name()
    )
}

fn agent_config(network: &str, path: DataPath) -> String {
    station_config(&format!("{network}.ha"), path)
        + &format!(
            "[home_agent]\naddress = \"{HOME_AGENT_ADDRESS}\"\nhome_prefix = \"2001:db8:1::/64\"\n\
             max_lifetime = \"72h\"\n\
             [[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::1234\"\n\
             prefixes = [\"2001:db8:a::/64\"]\nipv4_prefixes = [\"{IPV4_PREFIX}\"]\n\
             auth = {{ spi = 300, key = \"000102030405060708090a0b0c0d0e0f\" }}\n"
        )
}

fn router_config(network: &str, path: DataPath) -> String {
    station_config(&format!("{network}.mr"), path)
        + &format!(
            "[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \"2001:db8:1::/64\"\n\
             home_agent = \"{HOME_AGENT_ADDRESS}\"\nprefixes = [\"2001:db8:a::/64\"]\n\
             ipv4_prefixes = [\"{IPV4_PREFIX}\"]\nlifetime = \"72h\"\n\
             lan = [\"i0\"]\nadvertise = false\n\
             auth = {{ spi = 300, key = \"000102030405060708090a0b0c0d0e0f\" }}\n\
             [[mobile_router.uplink]]\ninterface = \"e0\"\npriority = 10\n\
             [[mobile_router.uplink]]\ninterface = \"e1\"\npriority = 20\n"
        )
}
