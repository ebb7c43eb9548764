//! From the config file to what the station and the platform want to know.

pub mod geonet;

use std::path::PathBuf;

use carnet_api::config::{Auth, Config, DataplanePath, Registration, Replay};
use carnet_linux::{PlatformConfig, WatchedInterface};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig};
use carnet_mobility::mobile_router::{MobileRouterConfig, RegistrationMode, UplinkConfig};
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_station::{MobileRouterSettings, StationConfig};
use carnet_wire::geonet::GnAddress;

/// MTU of the tunnel device. What fits into a tunnel is the forwarder's business; the device only has to
/// take whatever the kernel routes into it, outer headers included, from links with jumbo frames too.
const DEVICE_MTU: u32 = 9216;

/// What the station shall be. It is a GeoNetworking router if it has an address as one.
pub fn station(config: &Config, gn_address: Option<GnAddress>) -> StationConfig {
    let home_agent = config.home_agent.as_ref().map(|agent| HomeAgentConfig {
        address: agent.address,
        home_prefix: agent.home_prefix,
        home_link: agent.home_link.clone(),
        max_lifetime: agent.max_lifetime,
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
                    priority: u32::from(uplink.priority),
                })
                .collect(),
        },
        lan: router.lan.clone(),
        advertise: router.advertise,
    });
    let geonet = config.geonet.as_ref().zip(gn_address);
    let geonet = geonet.map(|(config, address)| geonet::router(config, address));
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

/// Beside the socket: it is as short-lived as that.
pub fn undo_file(config: &Config) -> PathBuf {
    config.station.socket.with_extension("undo")
}

/// The name of the data path that is in use, for `carnet status` and `carnet show tunnels`.
pub fn path_name(path: DataplanePath) -> &'static str {
    match path {
        DataplanePath::Auto | DataplanePath::Tun => "tun",
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
