//! Converts the config to the platform's settings; `carnet_settings` converts it to the settings of the
//! station.

pub mod geonet;
pub mod lan;
pub mod sandbox;
pub mod security;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use carnet_api::config::{Config, DataplanePath, FlowAction, PolicyAction, SecurityPolicy};
use carnet_linux::signal_strength::SignalSource;
use carnet_linux::{DataPath, FastPathConfig, InterfaceRoles, PlatformConfig, ProbeTarget, WatchedInterface};
pub use carnet_settings::station_config;

/// Whether the station uses the fast path of GeoNetworking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeonetPathChoice {
    /// The station does not use a fast path.
    Never,
    /// The station uses a fast path if the machine permits it.
    Perhaps,
    /// The station uses a fast path, or does not start.
    Certainly,
}

/// MTU of the tunnel device. The forwarder, not the device, decides which packets fit into a tunnel. So the
/// MTU is above the size of every packet that the kernel routes into the device, with its outer headers. This
/// includes packets from links with jumbo frames.
const TUNNEL_DEVICE_MTU: u32 = 9216;

/// Returns the platform's settings.
pub fn platform_config(config: &Config) -> PlatformConfig {
    let mut watched: Vec<WatchedInterface> = Vec::new();
    // On these links the home agent answers Neighbor Solicitations for other nodes. The kernel joins no
    // solicited-node groups for their addresses, so the interface must accept all multicast packets.
    for name in home_agent_links(config) {
        watched.push(WatchedInterface { name: name.clone(), needs_all_multicast: true });
    }
    if let Some(router) = &config.mobile_router {
        // RFC 4887 6.2.1: at home the router answers Neighbor Solicitations on the home link for hosts on
        // board. On other links it answers for mobile routers on board. In neither case does the kernel join
        // their solicited-node groups, so the uplinks must accept all multicast packets.
        let aggregated = router.prefixes.iter().any(|prefix| router.home_prefix.contains(prefix));
        let stands_in = router.nesting_enabled && !router.lan_interfaces.is_empty();
        let uplinks = router.uplinks.iter().map(|uplink| (&uplink.interface, aggregated || stands_in));
        for (name, all_multicast) in
            uplinks.chain(router.lan_interfaces.iter().map(|lan| (&lan.interface, false)))
        {
            if !watched.iter().any(|w| w.name == *name) {
                watched.push(WatchedInterface { name: name.clone(), needs_all_multicast: all_multicast });
            }
        }
    }
    // Only home agents distinguish known senders. Each router counts twice, because for some time its
    // previous care-of address is valid too.
    let senders = 2 * supported_nodes(config);
    let (ipsec, undo_file) = (config.has_ipsec(), undo_file(config));
    PlatformConfig {
        device_mtu: TUNNEL_DEVICE_MTU,
        watched_interfaces: watched,
        max_known_senders: senders,
        uses_ipsec: ipsec,
        undo_file,
    }
}

/// Returns the part of the config that needs this interface, in words. Returns `None` for an uplink, because
/// uplinks come and go and have their own events.
pub fn obstacle_without_interface(config: &Config, name: &str) -> Option<String> {
    let router = config.mobile_router.as_ref();
    let lan = router.is_some_and(|router| router.lan_interfaces.iter().any(|lan| lan.interface == name));
    const UNANSWERED_SOLICITATIONS: &str = "the home agent answers no Neighbor Solicitations there";
    let agent = config.home_agent.as_ref();
    let is_proxied = agent.is_some_and(|agent| agent.ndp_proxy.as_deref() == Some(name));
    let (key, what) = match home_agent_links(config).any(|link| link == name) {
        _ if lan => ("mobile_router.lan", "the hosts on it have no connection"),
        true if is_proxied => ("home_agent.ndp_proxy", UNANSWERED_SOLICITATIONS),
        true => ("home_agent.home_link", UNANSWERED_SOLICITATIONS),
        false => return None,
    };
    Some(format!("{key}: the interface {name} does not exist; until it does, {what}"))
}

/// Returns the interfaces on which the home agent answers Neighbor Solicitations.
fn home_agent_links(config: &Config) -> impl Iterator<Item = &String> {
    config.home_agent.iter().flat_map(|agent| agent.home_link.iter().chain(&agent.ndp_proxy))
}

/// Returns a message for each interface of the config that the machine does not have now.
pub fn missing_interfaces(config: &Config) -> Vec<String> {
    let lan = config.mobile_router.iter().flat_map(|router| &router.lan_interfaces).map(|lan| &lan.interface);
    let missing = |name: &&String| !carnet_linux::interface_exists(name);
    let named = lan
        .chain(home_agent_links(config))
        .filter(missing)
        .filter_map(|name| obstacle_without_interface(config, name));
    let uplinks = config.mobile_router.iter().flat_map(|router| &router.uplinks);
    let uplinks = uplinks.map(|uplink| &uplink.interface).filter(missing);
    let uplinks = uplinks.map(|name| {
        format!(
            "mobile_router.uplink: the interface {name} does not exist; the mobile router uses it as \
            soon as it does"
        )
    });
    named.chain(uplinks).collect()
}

/// Returns the home addresses that the home agent serves.
pub fn home_addresses(config: &Config) -> BTreeSet<Ipv6Addr> {
    let routers = config.home_agent.iter().flat_map(|agent| &agent.mobile_routers);
    routers.map(|router| router.home_address).collect()
}

/// Returns the sources from which the uplinks' signal strengths come.
pub fn signal_sources(config: &Config) -> Vec<SignalSource> {
    let uplinks = config.mobile_router.iter().flat_map(|router| &router.uplinks);
    uplinks
        .map(|uplink| SignalSource { interface: uplink.interface.clone(), file: uplink.signal_file.clone() })
        .collect()
}

/// Returns the target of the request that detects a captive portal over uplinks on which the home agent does
/// not answer. Returns `None` if the config has no such URL.
pub fn probe_target(config: &Config) -> Option<ProbeTarget> {
    let url = config.mobile_router.as_ref()?.captive_portal_probe.clone()?;
    Some(ProbeTarget { address: url.address, url_authority: url.host_and_port, path: url.path })
}

/// Returns the uplinks whose octets the program counts, because they have a volume limit or a capacity.
pub fn counted_uplinks(config: &Config) -> Vec<String> {
    let uplinks = config.mobile_router.iter().flat_map(|router| &router.uplinks);
    uplinks.map(|uplink| uplink.interface.clone()).collect()
}

/// Returns the interval at which the program counts the octets of uplinks. It is shorter if a policy balances
/// traffic by the capacity of the uplinks.
pub fn counting_interval(config: &Config) -> Duration {
    let mut policies = config.mobile_router.iter().flat_map(|router| &router.policies);
    let balances = policies.any(|policy| policy.policy_action == PolicyAction::Tunnel(FlowAction::Balance));
    if balances { Duration::from_millis(750) } else { Duration::from_secs(5) }
}

/// Returns the path of the undo file. The file is beside the socket, because both exist for the same time.
pub fn undo_file(config: &Config) -> PathBuf {
    config.station.socket.with_extension("undo")
}

/// Returns whether the station needs the kernel's routes, rules and a tunnel device, and not only a link for
/// frames.
pub fn needs_platform(config: &Config) -> bool {
    config.home_agent.is_some() || config.mobile_router.is_some()
}

/// Returns the path of the undo file for the GeoNetworking link.
pub fn link_undo_file(config: &Config) -> PathBuf {
    config.station.socket.with_extension("link-undo")
}

/// Returns whether GeoNetworking may use a fast path. It may not with an upper tester, which needs every
/// packet. It may not with packets inside UDP or with signatures, which the programs of the fast path do not
/// support.
pub fn geonet_path(config: &Config) -> GeonetPathChoice {
    let frames = config.geonet.as_ref().is_some_and(|geonet| geonet.interface.name().is_some());
    let signed = config
        .security
        .as_ref()
        .is_some_and(|security| security.unsigned_packet_policy != SecurityPolicy::Off);
    match config.dataplane.path {
        _ if !frames || signed || config.conformance.is_some() => GeonetPathChoice::Never,
        DataplanePath::Auto => GeonetPathChoice::Perhaps,
        DataplanePath::Bpf | DataplanePath::Xdp => GeonetPathChoice::Certainly,
        DataplanePath::Kernel | DataplanePath::Tun => GeonetPathChoice::Never,
    }
}

/// Returns the fast paths that the platform tries, and their parameters.
pub fn fast_path_config(config: &Config, flow_label_key: u64) -> FastPathConfig {
    let paths = match config.dataplane.path {
        // The kernel's tunnel devices would take packets that IPsec must handle.
        DataplanePath::Auto if config.has_ipsec() => vec![DataPath::Bpf, DataPath::Tun],
        // The TUN device carries encrypted tunnels. BPF programs would handle none of their packets, but keep
        // the kernel from merging datagrams.
        DataplanePath::Auto if config.encrypts_all_tunnels() => vec![DataPath::Tun],
        DataplanePath::Auto => vec![DataPath::Bpf, DataPath::Kernel, DataPath::Tun],
        DataplanePath::Bpf => vec![DataPath::Bpf],
        DataplanePath::Xdp => vec![DataPath::Xdp],
        DataplanePath::Kernel => vec![DataPath::Kernel],
        DataplanePath::Tun => vec![DataPath::Tun],
    };
    FastPathConfig {
        paths_by_preference: paths,
        flow_label_key,
        binding_capacity: 2 * supported_nodes(config),
        interface_roles: interface_roles(config),
    }
}

/// Returns the number of nodes that this station's home agent serves.
fn supported_nodes(config: &Config) -> usize {
    config.home_agent.as_ref().map_or(0, |agent| agent.mobile_routers.len())
}

/// Returns the reason why a data path is not available, in words: missing rights, or else the kernel's
/// refusal.
pub fn requirements_of_path(path: DataPath) -> String {
    let missing = carnet_linux::missing_for_bpf();
    match path {
        DataPath::Bpf | DataPath::Xdp if !missing.is_empty() => {
            format!("root, or the capabilities that this process lacks: {}", missing.join(", "))
        }
        _ => "a kernel that allows it".to_owned(),
    }
}

/// Returns the role of each interface.
pub fn interface_roles(config: &Config) -> InterfaceRoles {
    let router = config.mobile_router.as_ref();
    InterfaceRoles {
        lan_interfaces: router
            .map(|router| router.lan_interfaces.iter().map(|lan| lan.interface.clone()).collect())
            .unwrap_or_default(),
        uplinks: router
            .map(|router| router.uplinks.iter().map(|uplink| uplink.interface.clone()).collect())
            .unwrap_or_default(),
        is_home_agent: config.home_agent.is_some(),
        direct_routes_enabled: router.is_some_and(|router| !router.direct_routes.is_empty()),
    }
}
