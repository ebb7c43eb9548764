//! Converts a config file to the settings of a station, and records the inputs of a station.
//!
//! Two programs need this crate: carnet on the road, and the C interface through which a simulator runs the
//! same station. So each program can replay a run that the other has recorded.
//!
//! Left out: the settings of the platform (interfaces, fast paths, the source of positions), which the carnet
//! program converts.
#![forbid(unsafe_code)]

mod facilities;
pub mod geonet;
mod policies;
pub mod recording;

use std::net::{IpAddr, Ipv6Addr};

use carnet_api::config::{self, Auth, Config, FormerKey, Key, SharedKeyAuth};
use carnet_base::mapped;
use carnet_mobility::agents::{HomeAgentAddress, HomeAgentSelectionConfig};
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, Nat, OtherAgents, PeerHomeAgent};
use carnet_mobility::mobile_router::{MobileRouterConfig, UplinkConfig, VolumePeriod};
use carnet_mobility::router_advertiser::HostConfiguration;
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation, SessionPeer, SharedKeys};
use carnet_station::{
    AllowedPackets, GeonetSettings, InboundFilter, InboundPackets, LanSettings, MobileRouterSettings,
    PortRange, StationConfig,
};
use carnet_wire::geonet::GnAddress;
use ipnet::Ipv6Net;

/// Number that a mobile router uses for the keys of all its home agents in encrypted sessions. A home agent
/// instead numbers the keys of its nodes by their position in the config.
pub const HOME_AGENT_PEER: SessionPeer = SessionPeer(u32::MAX);

/// Returns the settings of a station. `gn_address` is the GeoNetworking address; with `None` the caller sets
/// the address later.
pub fn station_config(config: &Config, gn_address: Option<GnAddress>) -> StationConfig {
    let home_agent = config.home_agent.as_ref().map(|agent| HomeAgentConfig {
        address: agent.address,
        home_prefix: agent.home_prefix,
        home_network: agent.home_network,
        home_link: agent.home_link.clone(),
        ndp_proxy: agent.ndp_proxy.clone(),
        nat: Nat {
            ipv4_interface: agent.ipv4_nat.clone(),
            ipv6_interface: agent.ipv6_nat.clone(),
            ipv6_prefixes: agent.ipv6_nat_prefixes.clone(),
        },
        max_lifetime: agent.max_lifetime,
        other_agents: OtherAgents {
            answers_dhaad: agent.answers_dhaad,
            preference: agent.preference,
            peers: agent
                .peer_agents
                .iter()
                .map(|peer| PeerHomeAgent { address: peer.address, preference: peer.preference })
                .collect(),
        },
        force_udp: agent.always_uses_udp,
        ipv4_address: agent.ipv4_address,
        multiple_care_of_addresses: agent.multiple_care_of,
        nodes: agent
            .mobile_routers
            .iter()
            .zip(0..)
            .map(|(node, number)| AuthorizedNode {
                nat: node.allows_nat,
                care_of_test: node.care_of_test,
                home_address: node.home_address,
                prefixes: mapped::join_families(&node.prefixes, &node.ipv4_prefixes).into(),
                authentication: authentication_with_peer(&node.node_auth, SessionPeer(number)),
            })
            .collect(),
    });
    let mobile_router = config.mobile_router.as_ref().map(|router| MobileRouterSettings {
        router: MobileRouterConfig {
            home_address: router.home_address,
            home_prefix: router.home_prefix,
            home_agent: router.home_agents.addresses.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED),
            home_agent_ipv4: router.home_agents.ipv4_addresses.first().copied(),
            // Encrypted sessions are UDP datagrams, so inside IPv4 the router always uses UDP.
            force_udp: router.always_uses_udp || router.auth.session_keys().is_some(),
            liveness: router.heartbeat_intervals,
            policies: policies::flow_policies(router),
            probes_portals: router.captive_portal_probe.is_some(),
            ipv4_prefixes: router.ipv4_prefixes.clone(),
            prefixes: router.prefixes.clone(),
            mode: router.registration,
            lifetime: router.lifetime,
            authentication: own_authentication(&router.auth),
            uplinks: router
                .uplinks
                .iter()
                .map(|uplink| UplinkConfig {
                    interface: uplink.interface.clone(),
                    bid: uplink.bid,
                    cost: u32::from(uplink.uplink_cost),
                    capacity: uplink.capacity_kbit_s,
                    volume_octets: uplink.volume_limit,
                    volume_period: match uplink.volume_period {
                        config::VolumePeriod::Day => VolumePeriod::Day,
                        config::VolumePeriod::Week => VolumePeriod::Week,
                        config::VolumePeriod::Month => VolumePeriod::Month { first_day: uplink.volume_day },
                    },
                    volume_action: uplink.volume_action,
                    never_roams: uplink.roaming_use == config::RoamingUse::Never,
                    priority: u32::from(uplink.priority),
                    signal: uplink.signal_thresholds,
                    signal_timeout: Some(uplink.signal_timeout),
                })
                .collect(),
        },
        agents: HomeAgentSelectionConfig {
            prefix_discovery: router.prefix_discovery,
            ..agents_config(&router.home_agents)
        },
        lan: router
            .lan_interfaces
            .iter()
            .map(|it| lan_settings(it, !router.dns_forward_servers.is_empty()))
            .collect(),
        breakouts: policies::breakout_policies(router),
        breaks_out_when_away: router.breaks_out_without_home_agent,
        own_traffic: router.own_traffic,
        nesting_enabled: router.nesting_enabled,
        nested_routers: router.nested_routers.iter().map(|address| address.0).collect(),
        direct_networks: router.direct_routes.clone(),
        requires_direct_encryption: router.encrypts_direct_routes(),
    });
    let geonet = config.geonet.as_ref().map(|geonet| {
        let facilities = config
            .facilities
            .as_ref()
            .map(|it| facilities::facilities_settings(it, &config.station.name, geonet.station_type));
        GeonetSettings { facilities_settings: facilities, ..geonet::geonet_settings(geonet, gn_address) }
    });
    let mnpp = config.geonet.as_ref().and_then(geonet::mnpp_settings);
    StationConfig { home_agent, mobile_router, geonet, mnpp }
}

/// Returns the candidate home agents of a mobile router; an empty list if the config names a single home
/// agent.
fn agents_config(agents: &config::HomeAgents) -> HomeAgentSelectionConfig {
    if !agents.discovers_home_agents && agents.addresses.len() < 2 {
        return HomeAgentSelectionConfig::default();
    }
    let ipv4 = agents.ipv4_addresses.iter().copied().map(Some).chain(std::iter::repeat(None));
    let named = agents.addresses.iter().zip(ipv4);
    HomeAgentSelectionConfig {
        agents: named.map(|(&address, ipv4_address)| HomeAgentAddress { address, ipv4_address }).collect(),
        discovers_agents: agents.discovers_home_agents,
        ..HomeAgentSelectionConfig::default()
    }
}

/// Returns the settings of an interface of the mobile network. If `forwards` is true, carnet forwards DNS
/// queries of hosts. Hosts then get carnet's own address as DNS server, unless the config names other
/// servers.
fn lan_settings(lan: &config::Lan, forwards: bool) -> LanSettings {
    LanSettings {
        interface: lan.interface.clone(),
        prefixes: lan.prefixes.clone(),
        ipv4_prefixes: lan.ipv4_prefixes.clone(),
        send_router_advertisements: lan.sends_router_advertisements,
        mtu: lan.mtu,
        host_configuration: HostConfiguration {
            dns: lan
                .dns_servers
                .iter()
                .filter_map(|server| match server {
                    IpAddr::V6(server) => Some(*server),
                    IpAddr::V4(_) => None,
                })
                .collect(),
            search: lan.search_domains.clone(),
            pref64: lan.nat64_prefix.into_iter().collect(),
            captive_portal: lan.captive_portal.clone(),
            is_dns_server: forwards && lan.dns_servers.is_empty(),
            has_dhcpv6: lan.has_dhcpv6(forwards),
        },
        inbound_filter: inbound_filter_settings(&lan.inbound_filter),
    }
}

/// Returns the prefix that contains this one address, in IPv4-mapped form for IPv4.
fn single_address_prefix(address: IpAddr) -> Ipv6Net {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Returns the settings of the inbound filter (stateful firewall) of an interface of the mobile network.
fn inbound_filter_settings(door: &config::InboundFilter) -> InboundFilter {
    let inbound = match door.inbound_policy {
        config::InboundPolicy::Any => InboundPackets::Any,
        config::InboundPolicy::Established => InboundPackets::Established,
    };
    let allowed = door.allowed_packets.iter().map(|allowed| AllowedPackets {
        protocol: policies::protocol_number(allowed.protocol),
        ports: allowed
            .ports
            .iter()
            .map(|ports| PortRange { first: *ports.start(), last: *ports.end() })
            .collect(),
        destinations: allowed.destination_hosts.iter().copied().map(single_address_prefix).collect(),
    });
    let host_rate = door.rate_limit.map(|bits_per_s| bits_per_s / 8);
    InboundFilter { inbound, allowed_exceptions: allowed.collect(), is_isolated: door.is_isolated, host_rate }
}

/// Returns the authentication of one node at its home agent. A home agent may have very many nodes, so a node
/// with a single key must not need a heap allocation for it.
fn authentication_with_peer(auth: &Auth, peer: SessionPeer) -> Authentication {
    match auth {
        Auth::None => Authentication::None,
        Auth::Sessions(_) => Authentication::Session(peer),
        Auth::Ipsec => Authentication::Ipsec,
        Auth::Mac(mac) => {
            let association = security_association(mac.spi, &mac.shared_key, mac.replay_protection);
            match mac.differs_per_home_agent {
                Some(true) => Authentication::PerAgent(association),
                Some(false) | None => Authentication::SharedKey(association),
            }
        }
        Auth::Changing(changing) => authentication_with_keys(&changing.signing_key, &changing.former_keys),
    }
}

/// Returns a mobile router's own authentication. Even a single key is on the heap. Otherwise the value, which
/// is moved during its construction, would leave copies of the key on the stack.
fn own_authentication(auth: &Auth) -> Authentication {
    match auth.shared_key_auth() {
        Some(mac) => authentication_with_keys(mac, auth.former_keys()),
        None => authentication_with_peer(auth, HOME_AGENT_PEER),
    }
}

fn authentication_with_keys(mac: &SharedKeyAuth, former: &[FormerKey]) -> Authentication {
    let keys =
        std::iter::once((mac.spi, &mac.shared_key)).chain(former.iter().map(|it| (it.spi, &it.former_key)));
    Authentication::SharedKeys(Box::new(SharedKeys {
        associations: keys.map(|(spi, key)| security_association(spi, key, mac.replay_protection)).collect(),
        derives_key_per_agent: mac.differs_per_home_agent == Some(true),
    }))
}

fn security_association(spi: u32, key: &Key, replay: ReplayProtection) -> SecurityAssociation {
    SecurityAssociation { spi, key: key.clone(), replay }
}
