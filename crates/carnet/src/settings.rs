//! From the config file to what the station and the platform want to know.

pub mod geonet;
mod policies;

use std::path::PathBuf;

use carnet_api::config::{self, Auth, Config, DataplanePath, MultipleCareOf, Registration, Replay};
use carnet_linux::signal::SignalSource;
use carnet_linux::{FastPathConfig, Path, PlatformConfig, Ports, WatchedInterface};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, MultipleCareOfAddresses};
use carnet_mobility::mobile_router::{
    Liveness, MobileRouterConfig, RegistrationMode, SignalThresholds, UplinkConfig, VolumePeriod,
};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::{MobileRouterSettings, StationConfig};
use carnet_wire::geonet::GnAddress;

/// MTU of the tunnel device. What fits into a tunnel is the forwarder's business; the device only has to
/// take whatever the kernel routes into it, outer headers included, from links with jumbo frames too.
const DEVICE_MTU: u32 = 9216;

/// What the station shall be. Its address as a GeoNetworking router may be told
/// later.
pub fn station(config: &Config, gn_address: Option<GnAddress>) -> StationConfig {
    let home_agent = config.home_agent.as_ref().map(|agent| HomeAgentConfig {
        address: agent.address,
        home_prefix: agent.home_prefix,
        home_link: agent.home_link.clone(),
        max_lifetime: agent.max_lifetime,
        force_udp: agent.udp,
        ipv4_address: agent.ipv4_address,
        multiple_care_of_addresses: match agent.multiple_care_of {
            MultipleCareOf::Bulk => MultipleCareOfAddresses::Bulk,
            MultipleCareOf::Single => MultipleCareOfAddresses::Single,
            MultipleCareOf::None => MultipleCareOfAddresses::Prohibited,
        },
        nodes: agent
            .mobile_routers
            .iter()
            .map(|node| AuthorizedNode {
                home_address: node.home_address,
                prefixes: node.prefixes.clone(),
                authentication: authentication(&node.auth),
            })
            .collect(),
    });
    let mobile_router = config.mobile_router.as_ref().map(|router| MobileRouterSettings {
        router: MobileRouterConfig {
            home_address: router.home_address,
            home_prefix: router.home_prefix,
            home_agent: router.home_agent,
            home_agent_ipv4: router.home_agent_ipv4,
            force_udp: router.udp,
            liveness: router.heartbeat.map(|it| Liveness { busy: it.busy, idle: it.idle }),
            policies: router.policies.iter().map(policies::policy).collect(),
            prefixes: router.prefixes.clone(),
            mode: match router.registration {
                Registration::Explicit => RegistrationMode::Explicit,
                Registration::Implicit => RegistrationMode::Implicit,
            },
            lifetime: router.lifetime,
            authentication: authentication(&router.auth),
            uplinks: router
                .uplinks
                .iter()
                .map(|uplink| UplinkConfig {
                    interface: uplink.interface.clone(),
                    bid: uplink.bid,
                    cost: u32::from(uplink.cost),
                    capacity: uplink.capacity,
                    volume: uplink.volume,
                    volume_period: match uplink.volume_period {
                        config::VolumePeriod::Day => VolumePeriod::Day,
                        config::VolumePeriod::Week => VolumePeriod::Week,
                        config::VolumePeriod::Month => VolumePeriod::Month,
                    },
                    priority: u32::from(uplink.priority),
                    signal: uplink
                        .signal
                        .map(|signal| SignalThresholds { good: signal.good, poor: signal.poor }),
                })
                .collect(),
        },
        lan: router.lan.clone(),
        advertise: router.advertise,
    });
    let geonet = config.geonet.as_ref().map(|config| geonet::router(config, gn_address));
    StationConfig { home_agent, mobile_router, geonet }
}

/// What the platform has to watch.
pub fn platform(config: &Config) -> PlatformConfig {
    let mut watched: Vec<WatchedInterface> = Vec::new();
    if let Some(home_link) = config.home_agent.as_ref().and_then(|agent| agent.home_link.as_ref()) {
        watched.push(WatchedInterface { name: home_link.clone(), all_multicast: true });
    }
    if let Some(router) = &config.mobile_router {
        let uplinks = router.uplinks.iter().map(|uplink| &uplink.interface);
        for name in uplinks.chain(&router.lan) {
            if !watched.iter().any(|w| w.name == *name) {
                watched.push(WatchedInterface { name: name.clone(), all_multicast: false });
            }
        }
    }
    PlatformConfig { device_mtu: DEVICE_MTU, watched, undo_file: undo_file(config) }
}

/// Where the signals of the uplinks come from.
pub fn signals(config: &Config) -> Vec<SignalSource> {
    let uplinks = config.mobile_router.iter().flat_map(|router| &router.uplinks);
    uplinks
        .map(|uplink| SignalSource { interface: uplink.interface.clone(), file: uplink.signal_file.clone() })
        .collect()
}

/// The uplinks whose octets are counted.
pub fn counted(config: &Config) -> Vec<String> {
    let uplinks = config.mobile_router.iter().flat_map(|router| &router.uplinks);
    uplinks.filter(|uplink| uplink.volume.is_some()).map(|uplink| uplink.interface.clone()).collect()
}

/// Beside the socket: it is as short-lived as that.
pub fn undo_file(config: &Config) -> PathBuf {
    config.station.socket.with_extension("undo")
}

/// Whether the station needs more of the kernel than a link for frames: routes, rules and the tunnel device.
pub fn needs_platform(config: &Config) -> bool {
    config.home_agent.is_some() || config.mobile_router.is_some()
}

/// What is to be put back of the GeoNetworking link.
pub fn link_undo_file(config: &Config) -> PathBuf {
    config.station.socket.with_extension("link-undo")
}

/// Which fast path to take, and where.
pub fn fast_path(config: &Config, flow_label_key: u64) -> FastPathConfig {
    let paths = match config.dataplane.path {
        DataplanePath::Auto => vec![Path::Bpf, Path::Kernel, Path::Tun],
        DataplanePath::Bpf => vec![Path::Bpf],
        DataplanePath::Xdp => vec![Path::Xdp],
        DataplanePath::Kernel => vec![Path::Kernel],
        DataplanePath::Tun => vec![Path::Tun],
    };
    let nodes = config.home_agent.as_ref().map_or(0, |agent| agent.mobile_routers.len());
    FastPathConfig { paths, flow_label_key, bindings: nodes.saturating_mul(2), ports: ports(config) }
}

/// What the interfaces are to the station.
pub fn ports(config: &Config) -> Ports {
    let router = config.mobile_router.as_ref();
    Ports {
        lan: router.map(|router| router.lan.clone()).unwrap_or_default(),
        uplinks: router
            .map(|router| router.uplinks.iter().map(|uplink| uplink.interface.clone()).collect())
            .unwrap_or_default(),
        home_agent: config.home_agent.is_some(),
    }
}

fn authentication(auth: &Auth) -> Authentication {
    match auth {
        Auth::None => Authentication::None,
        Auth::Mac { spi, key, replay } => Authentication::SharedKey(SecurityAssociation {
            spi: *spi,
            key: *key.octets(),
            replay: match replay {
                Replay::Sequence => ReplayProtection::Sequence,
                Replay::Timestamp { window } => ReplayProtection::Timestamp { window: *window },
            },
        }),
    }
}
