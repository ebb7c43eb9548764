//! Settings of the NEMO plane.

use std::time::Duration;

use carnet_mobility::agents::HomeAgentSelectionConfig;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mnpp::Authorization;
use carnet_mobility::mobile_router::MobileRouterConfig;
use ipnet::Ipv6Net;

pub use crate::forwarding::{BreakoutPolicy, LanSettings, OwnTraffic};

/// Settings of the NEMO plane: of the home agent and of the mobile router. A role without settings is
/// inactive.
#[derive(Debug, Clone, Default)]
pub struct NemoConfig {
    /// Config of the home agent; `None` if the station is no home agent.
    pub home_agent: Option<HomeAgentConfig>,
    /// Settings of the mobile router; `None` if the station is no mobile router.
    pub mobile_router: Option<MobileRouterSettings>,
    /// Routes to the mobile networks of neighbouring vehicles, for a mobile router with IPv6 over
    /// GeoNetworking. `None` without such routes.
    pub mnpp: Option<MnppSettings>,
}

/// A mobile router, with the interfaces of its mobile network.
#[derive(Debug, Clone)]
pub struct MobileRouterSettings {
    /// Config of the router. If `agents` names candidates, it selects the router's home agent.
    pub router: MobileRouterConfig,
    /// Candidate home agents; if empty, the router uses the home agent that `router` names.
    pub agents: HomeAgentSelectionConfig,
    /// Interfaces of the mobile network.
    pub lan: Vec<LanSettings>,
    /// Policies for packets that leave without the tunnel, in the order of the config. The list also contains
    /// the policies before them whose packets take the tunnel, because the first matching policy decides.
    pub breakouts: Vec<BreakoutPolicy>,
    /// Whether packets of hosts on board leave without the tunnel while the home agent is away.
    pub breaks_out_when_away: bool,
    /// Where traffic of this machine's own programs goes.
    pub own_traffic: OwnTraffic,
    /// Whether mobile routers behind this router may have addresses of the links that this router visits.
    /// This router then asks for such addresses itself when it is behind another mobile router.
    pub nesting_enabled: bool,
    /// Link-layer addresses of the mobile routers behind this router that the operator knows. Each may
    /// register more addresses than unknown routers.
    pub nested_routers: Vec<[u8; 6]>,
    /// Networks for which the router tries direct routes: each contains mobile networks. If the list is
    /// empty, the router has no direct routes.
    pub direct_networks: Vec<Ipv6Net>,
    /// Whether direct routes carry packets only in encrypted sessions.
    pub requires_direct_encryption: bool,
}

/// Settings of the routes to neighbouring mobile networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MnppSettings {
    /// Name of the interface of IPv6 over GeoNetworking.
    pub interface: String,
    /// Rule by which the station accepts an announced prefix.
    pub authorization: Authorization,
    /// Length of the shortest prefix that the station accepts.
    pub shortest_prefix_length: u8,
    /// Hop limit of the station's announcements.
    pub announcement_hop_limit: u8,
    /// Largest interval between announcements while a neighbour is in range.
    pub interval: Duration,
}
