//! The status of the NEMO plane, and its counters by name. The types are those of the JSON that the API
//! answers with: a field stands here once, with the line that fills it.
//!
//! Text in place of an enum is a word of the API. Fields may be added, never renamed. A value that is unknown
//! or does not apply is `null`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{DropReason, Endpoint, Role, Time, mapped};
use carnet_mobility::MobileRouter;
pub use carnet_mobility::home_agent::Drain;
use carnet_mobility::home_agent::Nat;
use carnet_mobility::mobile_router::{AgentResponse, Attachment, Ipv4PrefixState, Registration, State};
pub use carnet_mobility::mobile_router::{OutsideCount, PolicyStatus as Policy};
use carnet_mobility::router_advertiser::RouterAdvertiser;
use carnet_wire::address::MacAddress;
use carnet_wire::ipv4;
use carnet_wire::ipv6::protocol;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::drop_reason::TunnelDropReason;
use crate::forwarding::packet_rules::PortRange;
use crate::forwarding::{AllowedPackets, LanSettings, uplink_of_policy};
use crate::plane::Nemo;

/// The mobile router in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MobileRouterStatus {
    /// State of the registration, in one snake_case word, such as `registered` or `home`.
    pub state: String,
    /// Whether an uplink leads to the home agent now; false if each uplink is down or silent. A registration
    /// outlives its uplinks for up to its lifetime.
    #[serde(default)]
    pub reachable: Option<bool>,
    /// Reason of the state `refused`: the status of the home agent's answer and its meaning; else `null`.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Home agent; `::` while the router has not yet found its home agent.
    pub home_agent: Ipv6Addr,
    /// Whether packets of hosts on board leave past the tunnel because the home agent is away
    /// (`when_home_agent_is_away`).
    #[serde(default)]
    pub breaks_out: bool,
    /// All known home agents, in the order in which the router tries them.
    #[serde(default)]
    pub home_agents: Vec<Ipv6Addr>,
    /// Care-of address that is registered without Binding Identifier, or `null`.
    pub care_of_address: Option<IpAddr>,
    /// All care-of addresses that are registered.
    #[serde(default)]
    pub care_of_addresses: Vec<IpAddr>,
    /// The mobile network prefixes.
    #[serde(default)]
    pub prefixes: Vec<Ipv6Net>,
    /// The IPv4 prefixes of the mobile network, with the home agent's answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv4_prefixes: Vec<Ipv4Prefix>,
    /// The interfaces of the mobile network.
    #[serde(default)]
    pub lan: Vec<LanInterface>,
    /// Interface that carries the traffic, or `null`.
    pub uplink: Option<String>,
    /// Interface that an operator has selected (`carnet handover`), or `null` if carnet selects.
    pub wanted_uplink: Option<String>,
    /// Policies with an uplink that an operator has selected (`carnet handover --policy`), and that uplink.
    #[serde(default)]
    pub moved_policies: BTreeMap<String, String>,
}

/// An IPv4 prefix of the mobile network, and the home agent's answer (RFC 5555 3.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv4Prefix {
    /// The prefix.
    pub prefix: Ipv4Net,
    /// Whether the tunnel carries its packets.
    pub accepted: bool,
    /// Status of the home agent's answer, 0 for success; `null` without an answer.
    pub status: Option<u8>,
    /// Meaning of the answer.
    pub reason: String,
}

/// An interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanInterface {
    /// Name of the interface.
    pub interface: String,
    /// `up`, `no_carrier` or `no_such_interface`.
    pub state: String,
    /// Packets from outside that reach hosts: `any`, or `established` for those of connections that hosts
    /// began.
    #[serde(default)]
    pub inbound: String,
    /// Exceptions: packets from outside that reach hosts nevertheless.
    #[serde(default)]
    pub allow: Vec<LanAllowed>,
    /// Whether no packets pass between this interface and others on board.
    #[serde(default)]
    pub isolated: bool,
    /// Why the router forwards nothing to this interface, although its door should be shut only to packets
    /// from outside; `null` if the door works.
    #[serde(default)]
    pub closed: Option<String>,
}

/// Packets from outside that reach hosts on an interface without a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanAllowed {
    /// `tcp`, `udp`, `icmp` or `icmpv6`; of the last two only Echo Requests pass.
    pub protocol: String,
    /// Destination ports, such as `443` or `5000-5010`; none for all.
    pub ports: Vec<String>,
    /// Hosts; none for every host of the interface.
    pub to: Vec<IpAddr>,
}

/// The home agent in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeAgentStatus {
    /// Address of the home agent.
    pub address: Ipv6Addr,
    /// Number of bindings.
    pub bindings: u64,
    /// Home addresses of nodes whose key has used up three quarters or more of its 32,768 sequence numbers.
    /// Only nodes that have sent no timestamp since (see `auth.replay`), the first 16.
    #[serde(default)]
    pub keys_to_change: Vec<Ipv6Addr>,
    /// NAT of mobile networks (`ipv4_nat`, `ipv6_nat`), one element for each family; empty without NAT.
    #[serde(default)]
    pub nat: Vec<NatStatus>,
    /// Proxy Neighbor Discovery on a provider's link (`ndp_proxy`); `null` without it.
    #[serde(default)]
    pub ndp_proxy: Option<NdpProxyStatus>,
}

/// Version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            AddressFamily::Ipv4 => "ipv4",
            AddressFamily::Ipv6 => "ipv6",
        }
    }
}

/// NAT of mobile networks at a home agent, for one address family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatStatus {
    /// Address family: `ipv4` or `ipv6`.
    pub family: AddressFamily,
    /// Interface to the Internet, whose address the packets get.
    pub interface: String,
    /// Whether the kernel has the rules.
    pub in_force: bool,
    /// Why the kernel does not have the rules; `null` if it has them.
    pub failure: Option<String>,
    /// Packets whose source address the rules have changed since the start, and the answers to them.
    pub translated: OutsideCount,
}

/// Proxy Neighbor Discovery of a home agent on a provider's link (RFC 4861 7.2.8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdpProxyStatus {
    /// Name of the interface.
    pub interface: String,
    /// `up`, or `down` while the link has no carrier or no address to answer from.
    pub state: String,
    /// Number of single addresses for which the home agent answers: its own and bound home addresses.
    pub addresses: u64,
    /// Number of registered mobile networks for whose addresses the home agent answers.
    pub prefixes: u64,
    /// Number of solicitations that the home agent has answered since the start.
    pub answered: u64,
    /// Number of solicitations since the start that got no answer because there were more than 500 in a
    /// second.
    pub refused: u64,
}

/// A binding: at a mobile router its own with the home agent, at a home agent one of its mobile nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Role in which this station has the binding.
    pub role: Role,
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Care-of address; `null` while the node has none. A home agent shows the address that packets come
    /// from: for a node behind a NAT, the address of the NAT.
    pub care_of_address: Option<IpAddr>,
    /// The UDP port at the care-of address, when packets go there in UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// Seconds since the node came to this care-of address; `null` without a care-of address. Also `null` at
    /// a home agent whose state is from a version that did not write it.
    #[serde(default)]
    pub stay_s: Option<u32>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    pub bid: Option<u16>,
    /// Mobile network prefixes of the binding.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes of the mobile network that belong to the binding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// State: `registered`, `registering`, `disconnected`, `home`, `refused` or `stopped`. At a home agent
    /// also `untested`: the node has not yet answered at its care-of address.
    pub state: String,
    /// Granted lifetime in seconds.
    pub lifetime_s: u32,
    /// Remaining lifetime in seconds.
    pub remaining_s: u32,
    /// Sequence number of the last Binding Update that was accepted (home agent) or acknowledged (mobile
    /// router).
    pub sequence: u16,
}

/// An uplink of a mobile router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Uplink {
    /// Interface name.
    pub interface: String,
    /// State: `active`, `standby`, `registering`, `silent` (the home agent does not answer over it), `home`,
    /// or `refused: ` or `down: ` with the reason.
    pub state: String,
    /// Seconds until the router registers a silent or refused uplink again, or `null` if that is not known.
    #[serde(default)]
    pub retry_s: Option<u32>,
    /// Care-of address of the uplink, or `null` while it has no care-of address.
    pub care_of_address: Option<IpAddr>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    pub bid: Option<u16>,
    /// Priority of the config; lower wins.
    pub priority: u8,
    /// Signal in dBm, or `null` if it is not measured, or no longer.
    pub signal_dbm: Option<i32>,
    /// Round-trip time to the home agent in milliseconds, or `null` if it is not measured.
    pub rtt_ms: Option<f64>,
    /// Share of lost probes, 0 to 1, or `null` if it is not measured.
    pub loss: Option<f64>,
    /// Capacity in kbit/s, as configured or, if a policy balances, as measured; else `null`.
    #[serde(default)]
    pub capacity_kbit_s: Option<u32>,
    /// URI of the captive portal to which the access network redirects HTTP, or which it announces (RFC
    /// 8910); `null` without a portal. The network forwards nothing until a user has agreed to the portal's
    /// terms.
    #[serde(default)]
    pub captive_portal: Option<String>,
    /// The host on board that has access to the captive portal (`carnet portal`), or `null`.
    #[serde(default)]
    pub portal_access: Option<PortalAccess>,
    /// Packets by this uplink of hosts with access to its captive portal, since the start of carnet; `null`
    /// before the first one. The program fills this field.
    #[serde(default)]
    pub portal_outside: Option<OutsideCount>,
    /// Octets that the uplink has carried in this period, both directions together. Its interface counts
    /// them, and the router reads them at least every five seconds; `null` before the first reading.
    #[serde(default)]
    pub volume_used: Option<u64>,
    /// Limit of octets in a period, or `null` without a limit.
    #[serde(default)]
    pub volume: Option<u64>,
    /// The period: `day`, `week` or `month`, of the calendar in UTC, a month from `volume_day` on.
    #[serde(default)]
    pub volume_period: String,
    /// Action of the router at the limit: `last_resort` or `stop`.
    #[serde(default)]
    pub volume_action: String,
    /// Whether the modem is in the network of another operator than its own, or `null` if that is not known.
    #[serde(default)]
    pub roaming: Option<bool>,
    /// True for an uplink that carries the traffic now.
    pub active: bool,
    /// Whether the uplink is overloaded: round trips have grown, but packets still arrive. It keeps its
    /// traffic.
    #[serde(default)]
    pub full: bool,
    /// The router of the care-of address, if it does not answer either; else `null`.
    #[serde(default)]
    pub silent_router: Option<IpAddr>,
    /// The first of the station's `obstacles` (`GET /v1/status`), which concerns every uplink; `null` without
    /// an obstacle. The program fills this field.
    #[serde(default)]
    pub obstacle: Option<String>,
}

/// Access of a host on board to the captive portal of an uplink. Its packets leave by this uplink without the
/// tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalAccess {
    /// MAC address of the host, `xx:xx:xx:xx:xx:xx`.
    pub host: String,
    /// Interface of the mobile network at which the host is.
    pub interface: String,
    /// DNS servers that get the queries of the host.
    pub dns: Vec<IpAddr>,
    /// Seconds until the access ends.
    pub remaining_s: u32,
}

/// A tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Home address of the binding to which the tunnel belongs.
    #[serde(default)]
    pub home_address: Option<Ipv6Addr>,
    /// Address of the local end.
    pub local: IpAddr,
    /// Address of the remote end.
    pub remote: IpAddr,
    /// UDP port of the remote end, as this end sees it; `null` without UDP.
    #[serde(default)]
    pub remote_port: Option<u16>,
    /// Binding Identifier (RFC 5648), or `null` without one.
    #[serde(default)]
    pub bid: Option<u16>,
    /// Encapsulation of inner packets: `ipv6` (RFC 2473), `ipv4` (protocol 41) or `udp` (RFC 5555).
    pub encapsulation: String,
    /// `encrypted` for packets in encrypted sessions ([tunnel](tunnel.md)), else `in the clear`.
    #[serde(default)]
    pub encryption: String,
    /// Size of the largest inner packet that needs no outer fragments, in octets.
    pub mtu: u32,
    /// Path of the packets: `tun`, or the name of a fast path. The program fills this field.
    pub path: String,
    /// Inner packets that came through the tunnel, further copies of duplicated ones among them.
    #[serde(default)]
    pub packets_in: u64,
    /// Octets in the inner packets that came through the tunnel.
    #[serde(default)]
    pub octets_in: u64,
    /// Inner packets that went into the tunnel.
    #[serde(default)]
    pub packets_out: u64,
    /// Octets in the inner packets that went into the tunnel.
    #[serde(default)]
    pub octets_out: u64,
}

/// Route of a mobile router to a network, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The network; `::/0` for all networks without a route of their own.
    pub prefix: Ipv6Net,
    /// Path of the packets: `direct` to the vehicle that has the network, by way of the `home_agent`, on the
    /// `home` link, or `none`.
    pub path: String,
    /// Outgoing interface, or `null`.
    pub interface: Option<String>,
    /// Link-layer address of the vehicle in radio range that announces the network, `xx:xx:xx:xx:xx:xx`, or
    /// `null`.
    pub station: Option<String>,
    /// Next hop: link-local address of that vehicle, care-of address of one that is not in radio range, or
    /// the home agent; else `null`.
    pub next_hop: Option<Ipv6Addr>,
    /// Round-trip time to that vehicle in milliseconds, or `null` if it is not measured.
    pub rtt_ms: Option<f64>,
    /// Seconds since the route was installed, or `null` if that is not known.
    pub age_s: Option<f64>,
    /// Reason for the path, in plain words.
    pub reason: String,
    /// For a direct path: `encrypted` for packets in encrypted sessions ([tunnel](tunnel.md)), else `in the
    /// clear`. For another path `null`.
    #[serde(default)]
    pub encryption: Option<String>,
}

/// Content of the Router Advertisements on an interface of the mobile network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanAdvertisement {
    /// Whether the prefixes and the router are valid for hosts; `false` where the home agent has refused the
    /// prefixes.
    pub valid: bool,
    /// Prefixes.
    pub prefixes: Vec<Ipv6Net>,
    /// MTU in octets, or `null` while it is not known.
    pub mtu: Option<u32>,
    /// DNS servers.
    pub dns: Vec<Ipv6Addr>,
    /// Domain names that hosts append to short names.
    pub search: Vec<String>,
    /// Prefixes of NAT64.
    pub pref64: Vec<Ipv6Net>,
    /// URI of the captive portal's API, or `null`.
    pub captive_portal: Option<String>,
    /// Another router that advertises itself on the interface, or `null`.
    pub other_router: Option<Ipv6Addr>,
}

fn encryption_name(is_encrypted: bool) -> &'static str {
    if is_encrypted { "encrypted" } else { "in the clear" }
}

fn to_whole_seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

fn to_milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Disconnected => "disconnected",
        State::Registering => "registering",
        State::Registered => "registered",
        State::Home => "home",
        State::Refused(_) => "refused",
        State::Stopped => "stopped",
    }
}

/// Returns the IPv4 prefixes of the mobile router with the home agent's answers.
fn ipv4_prefixes(router: &MobileRouter) -> Vec<Ipv4Prefix> {
    let prefixes = router.ipv4_prefixes().iter();
    let status = |(prefix, state): &(Ipv4Net, Ipv4PrefixState)| Ipv4Prefix {
        prefix: *prefix,
        accepted: state.is_accepted(),
        status: state.status(),
        reason: state.meaning(),
    };
    prefixes.map(status).collect()
}

/// Returns the status of each family's NAT. The platform adds the counts, and whether the rules are in force.
fn nat_status(nat: &Nat) -> Vec<NatStatus> {
    let families = [(AddressFamily::Ipv4, &nat.ipv4_interface), (AddressFamily::Ipv6, &nat.ipv6_interface)];
    let with_nat = families.into_iter().filter_map(|(family, interface)| {
        Some(NatStatus {
            family,
            interface: interface.clone()?,
            in_force: false,
            failure: None,
            translated: OutsideCount::default(),
        })
    });
    with_nat.collect()
}

/// Returns an exception of a door.
fn allowed_exception(packets: &AllowedPackets) -> LanAllowed {
    let protocol = match packets.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        ipv4::ICMP => "icmp".to_owned(),
        protocol::ICMPV6 => "icmpv6".to_owned(),
        other => other.to_string(),
    };
    let port = |ports: &PortRange| match ports.first == ports.last {
        true => ports.first.to_string(),
        false => format!("{}-{}", ports.first, ports.last),
    };
    let hosts = packets.destinations.iter().map(|host| host.addr().to_canonical());
    LanAllowed { protocol, ports: packets.ports.iter().map(port).collect(), to: hosts.collect() }
}

impl Nemo {
    /// Returns the mobile router's status, if the station is a mobile router or a mobile node.
    pub fn mobile_router_status(&self) -> Option<MobileRouterStatus> {
        let router = self.mobile_router()?;
        let leads = |index, attachment: &Attachment| match attachment {
            Attachment::Down(_) => false,
            Attachment::Home { .. } => true,
            Attachment::Foreign { .. } => !matches!(
                router.agent_response(index),
                AgentResponse::Silent { .. } | AgentResponse::Refused { .. }
            ),
        };
        let own = router.config().home_agent;
        let known: Vec<_> =
            self.home_agent_selection().iter().flat_map(|agents| agents.known_agents()).collect();
        let others = known.iter().map(|agent| agent.address);
        let identified = router.bindings().iter().filter_map(|binding| binding.registration.as_ref());
        let registrations = router.registration().into_iter().chain(identified);
        let policies = self.policy_status().into_iter();
        Some(MobileRouterStatus {
            state: state_name(router.state()).into(),
            reachable: Some(
                router.uplinks().iter().enumerate().any(|(index, uplink)| leads(index, &uplink.attachment)),
            ),
            refusal: match router.state() {
                State::Refused(status) => Some(format!("status {}, {}", status.0, status.meaning())),
                _ => None,
            },
            home_address: router.config().home_address,
            home_agent: own,
            breaks_out: self
                .roles
                .router_role
                .as_ref()
                .is_some_and(|router| router.is_sending_outside_tunnel()),
            home_agents: if known.is_empty() { vec![own] } else { others.collect() },
            care_of_address: router.registration().map(|r| r.care_of_address),
            care_of_addresses: registrations.map(|r| r.care_of_address).collect(),
            prefixes: router.config().prefixes.clone(),
            ipv4_prefixes: ipv4_prefixes(router),
            lan: self.lan_status(),
            uplink: self.active_interface(),
            wanted_uplink: router.forced_uplink().map(|uplink| uplink.config.interface.clone()),
            moved_policies: policies
                .filter_map(|policy| Some((policy.name, policy.wanted_uplink?)))
                .collect(),
        })
    }

    /// Returns the home agent's status, if the station is a home agent.
    pub fn home_agent_status(&self) -> Option<HomeAgentStatus> {
        let agent = self.home_agent()?;
        Some(HomeAgentStatus {
            address: agent.config().address,
            bindings: agent.bindings().iter().count() as u64,
            keys_to_change: agent.nodes_needing_new_key().take(16).collect(),
            nat: nat_status(&agent.config().nat),
            ndp_proxy: agent.proxied_link().map(|link| NdpProxyStatus {
                interface: link.interface,
                state: if link.is_up { "up" } else { "down" }.into(),
                addresses: link.address_count,
                prefixes: link.prefixes,
                answered: link.answered_solicitations,
                refused: link.refused_solicitations,
            }),
        })
    }

    /// Returns the interface of the uplink that carries the traffic.
    fn active_interface(&self) -> Option<String> {
        let router = self.mobile_router()?;
        router.uplinks().get(router.active_uplink()?).map(|uplink| uplink.config.interface.clone())
    }

    fn role_of_mobile_router(&self) -> Role {
        let is_router = self.mobile_router().is_none_or(|router| router.config().is_router());
        if is_router { Role::MobileRouter } else { Role::MobileNode }
    }

    /// Returns all bindings: the bindings of the home agent, then the bindings of the mobile router.
    pub fn binding_status(&self, now: Time) -> Vec<Binding> {
        let mut bindings: Vec<Binding> = self
            .home_agent()
            .into_iter()
            .flat_map(|agent| agent.bindings().iter())
            .map(|binding| (mapped::split_by_family(binding.prefixes.iter().copied()), binding))
            .map(|((prefixes, ipv4_prefixes), binding)| Binding {
                role: Role::HomeAgent,
                home_address: binding.home_address,
                care_of_address: Some(binding.care_of_address.address()),
                udp_port: binding.care_of_address.port(),
                stay_s: binding.care_of_address_age.age_at(now).map(to_whole_seconds),
                bid: binding.bid,
                prefixes,
                ipv4_prefixes,
                state: if binding.is_care_of_tested { "registered" } else { "untested" }.into(),
                lifetime_s: to_whole_seconds(binding.lifetime),
                remaining_s: to_whole_seconds(binding.expires_at.saturating_since(now)),
                sequence: binding.sequence,
            })
            .collect();
        if let Some(router) = self.mobile_router() {
            let own = |registration: Option<&Registration>, bid, state: &str| Binding {
                role: self.role_of_mobile_router(),
                home_address: router.config().home_address,
                care_of_address: registration.map(|r| r.care_of_address),
                udp_port: None,
                stay_s: registration.map(|r| to_whole_seconds(now.saturating_since(r.registered_since))),
                bid,
                prefixes: router.config().prefixes.clone(),
                ipv4_prefixes: router.accepted_ipv4_prefixes().collect(),
                state: state.into(),
                lifetime_s: registration.map_or(0, |r| to_whole_seconds(r.lifetime)),
                remaining_s: registration.map_or(0, |r| to_whole_seconds(r.expires_at.saturating_since(now))),
                sequence: registration.map_or(0, |r| r.sequence),
            };
            // Each registered binding identifier has a binding. Without any, show the binding without
            // identifier.
            let identified = router.bindings().iter().filter_map(|b| Some((b.registration.as_ref()?, b.bid)));
            bindings.extend(identified.map(|(it, bid)| own(Some(it), bid, "registered")));
            if router.registration().is_some() || router.bindings().iter().all(|b| b.registration.is_none()) {
                bindings.push(own(router.registration(), None, state_name(router.state())));
            }
        }
        bindings
    }

    /// Returns the uplinks of the mobile router, in the order of the config.
    pub fn uplink_status(&self, now: Time) -> Vec<Uplink> {
        let Some(router) = self.mobile_router() else { return Vec::new() };
        let active = router.active_uplink();
        let response = |index| match router.agent_response(index) {
            AgentResponse::Silent { again } => ("silent", again.map(|again| again.saturating_since(now))),
            AgentResponse::Refused { again } => ("refused", again.map(|again| again.saturating_since(now))),
            _ if active == Some(index) => ("active", None),
            AgentResponse::Asked => ("registering", None),
            AgentResponse::Answers => ("standby", None),
        };
        let uplinks = router.uplinks().iter().enumerate().map(|(index, uplink)| {
            let is_foreign = matches!(uplink.attachment, Attachment::Foreign { .. });
            let answers =
                matches!(router.agent_response(index), AgentResponse::Answers | AgentResponse::Asked);
            let quality = if is_foreign && answers { router.quality(index) } else { None };
            Uplink {
                interface: uplink.config.interface.clone(),
                state: match uplink.attachment {
                    Attachment::Down(reason) => format!("down: {reason}"),
                    Attachment::Home { .. } => "home".into(),
                    Attachment::Foreign { .. } => match (response(index).0, router.refusal_text()) {
                        ("refused", Some(why)) => format!("refused: {why}"),
                        (state, _) => state.into(),
                    },
                },
                retry_s: if is_foreign { response(index).1.map(to_whole_seconds) } else { None },
                care_of_address: uplink.care_of_addresses().first().copied(),
                bid: uplink.config.bid,
                priority: u8::try_from(uplink.config.priority).unwrap_or(u8::MAX),
                signal_dbm: uplink.signal_dbm,
                rtt_ms: quality.map(|quality| to_milliseconds(quality.rtt)),
                loss: quality.map(|quality| quality.loss),
                capacity_kbit_s: uplink.capacity,
                captive_portal: uplink.captive_portal().map(str::to_owned),
                portal_outside: None,
                portal_access: self.portal_access(&uplink.config.interface, now),
                volume_used: uplink.volume_used(),
                volume: uplink.config.volume_octets,
                volume_period: uplink.config.volume_period.name().into(),
                volume_action: uplink.config.volume_action.name().into(),
                roaming: uplink.is_roaming,
                active: active == Some(index),
                full: router.is_path_saturated(index),
                silent_router: uplink.silent_router(),
                obstacle: None,
            }
        });
        uplinks.collect()
    }

    /// Returns the access of a host to the captive portal of this uplink.
    fn portal_access(&self, uplink: &str, now: Time) -> Option<PortalAccess> {
        let portal = self.portal_access.as_ref().filter(|portal| portal.uplink == uplink)?;
        Some(PortalAccess {
            host: portal.host_mac.to_string(),
            interface: portal.lan_interface.clone(),
            dns: portal.dns_servers.clone(),
            remaining_s: to_whole_seconds(portal.access_ends_at.saturating_since(now)),
        })
    }

    /// Returns the policies of the mobile router, in the order of the config.
    pub fn policy_status(&self) -> Vec<Policy> {
        let Some(router) = &self.roles.router_role else { return Vec::new() };
        let mut policies = router.state_machine.policy_status();
        for (index, policy) in
            router.breakout_policies().iter().enumerate().filter(|(_, policy)| policy.breaks_out)
        {
            let uplink = uplink_of_policy(policy, &router.state_machine)
                .filter(|_| !router.state_machine.is_at_home());
            let uplink = uplink.and_then(|uplink| router.state_machine.uplinks().get(uplink));
            let status = Policy {
                name: policy.name.clone(),
                action: "breakout".into(),
                selectors: policy.flow_selectors.len(),
                uplinks: policy.uplinks.clone(),
                wanted_uplink: None,
                takes: uplink.map(|uplink| uplink.config.interface.clone()).into_iter().collect(),
                home_agent: "not_asked".into(),
                outside: BTreeMap::new(),
            };
            policies.insert(index.min(policies.len()), status);
        }
        policies
    }

    /// Returns the interfaces of the mobile network with their state.
    pub fn lan_status(&self) -> Vec<LanInterface> {
        let doors = self.roles.router_role.iter().flat_map(|router| &router.lan_settings);
        let lan = doors.map(|LanSettings { interface: name, inbound_filter: door, .. }| {
            let state = match self.interface(name) {
                Some(interface) if interface.running => "up",
                Some(_) => "no_carrier",
                None => "no_such_interface",
            };
            LanInterface {
                interface: name.clone(),
                state: state.into(),
                inbound: door.inbound.name().into(),
                allow: door.allowed_exceptions.iter().map(allowed_exception).collect(),
                isolated: door.is_isolated,
                closed: self.packet_rule_error.clone().filter(|_| door.needs_rules()),
            }
        });
        lan.collect()
    }

    /// Returns the addresses of the uplink by which packets leave past the tunnel because the home agent is
    /// away; none if packets take the tunnel.
    pub fn addresses_reached_outside_tunnel(&self) -> Vec<IpAddr> {
        let Some(router) =
            self.roles.router_role.as_ref().filter(|router| router.is_sending_outside_tunnel())
        else {
            return Vec::new();
        };
        let machine = &router.state_machine;
        let uplink = machine.uplink_in_use().and_then(|index| machine.uplinks().get(index));
        uplink.map(|uplink| uplink.care_of_addresses()).unwrap_or_default()
    }

    /// Returns the MTU with which packets of hosts fit into the tunnel; `None` if no interface advertises it.
    pub fn lan_mtu(&self) -> Option<u32> {
        let advertisers = self.roles.router_role.iter().flat_map(|router| &router.advertisers_by_lan);
        advertisers.filter_map(RouterAdvertiser::mtu).min()
    }

    /// Returns what Router Advertisements say on an interface of the mobile network; `None` if the router
    /// sends none there.
    pub fn lan_advertisement(&self, interface: &str) -> Option<LanAdvertisement> {
        let router = self.roles.router_role.as_ref()?;
        let advertiser = router.advertisers_by_lan.iter().find(|it| it.interface() == interface)?;
        let hosts = advertiser.host_configuration();
        Some(LanAdvertisement {
            valid: advertiser.has_valid_prefixes(),
            prefixes: advertiser.prefixes().to_vec(),
            mtu: advertiser.mtu(),
            dns: hosts.dns,
            search: hosts.search,
            pref64: hosts.pref64,
            captive_portal: hosts.captive_portal,
            other_router: advertiser.other_router(),
        })
    }

    /// Returns the routes of a mobile router: first the networks of nearby vehicles, in order, then the
    /// default route.
    pub fn route_status(&self, now: Time) -> Vec<Route> {
        let Some(router) = self.mobile_router() else { return Vec::new() };
        let active = self.active_interface();
        let path = match router.state() {
            State::Home => "home",
            State::Registered => "home_agent",
            _ if active.is_some() => "home_agent",
            _ => "none",
        };
        let home = Route {
            prefix: Ipv6Net::default(),
            path: path.into(),
            next_hop: (path == "home_agent").then_some(router.config().home_agent),
            interface: active,
            station: None,
            rtt_ms: None,
            age_s: None,
            reason: state_name(router.state()).into(),
            encryption: None,
        };
        let direct = |interface, next_hop, is_encrypted| Route {
            path: "direct".into(),
            interface,
            next_hop,
            encryption: Some(encryption_name(is_encrypted).into()),
            ..home.clone()
        };
        let mut routes: Vec<Route> = self
            .neighbour_routes()
            .into_iter()
            .flat_map(|neighbours| neighbours.prefix_routes())
            .map(|way| Route {
                prefix: way.prefix,
                station: Some(MacAddress(way.station).to_string()),
                rtt_ms: way.rtt.map(to_milliseconds),
                age_s: Some(now.saturating_since(way.state_since).as_secs_f64()),
                reason: way.state_reason.into(),
                ..match way.is_direct {
                    true => {
                        direct(self.neighbour_interface().map(str::to_owned), Some(way.link_local), false)
                    }
                    false => home.clone(),
                }
            })
            .collect();
        for route in self.direct_routes().into_iter().flat_map(|direct| direct.routes()) {
            let over = router.uplinks().iter().find(|uplink| {
                route.local.is_some_and(|local| uplink.care_of_addresses().contains(&local.into()))
            });
            let interface = over.map(|uplink| uplink.config.interface.clone());
            for prefix in &route.prefixes {
                routes.push(Route {
                    prefix: *prefix,
                    rtt_ms: route.rtt.map(to_milliseconds),
                    age_s: Some(now.saturating_since(route.state_since).as_secs_f64()),
                    reason: route.reason.into(),
                    ..match route.is_direct {
                        true => direct(interface.clone(), route.remote, route.is_encrypted),
                        false => home.clone(),
                    }
                });
            }
        }
        routes.sort_by(|a, b| (a.prefix, &a.path, &a.station).cmp(&(b.prefix, &b.path, &b.station)));
        routes.push(home);
        routes
    }

    /// Returns all tunnels of the station with their ends, local and remote. Path and counters are those of
    /// the slow path.
    pub fn tunnel_status(&self) -> Vec<((Endpoint, Endpoint), Tunnel)> {
        let mut tunnels: Vec<_> = self.slow_path_forwarder().tunnels().collect();
        tunnels.sort_by_key(|(tunnel, _)| (!tunnel.transmit, tunnel.local, tunnel.remote));
        let tunnels = tunnels.into_iter().map(|(tunnel, mtu)| {
            let ends = (tunnel.local, tunnel.remote);
            let traffic = self.slow_path_forwarder().traffic_of_tunnel(ends);
            let status = Tunnel {
                home_address: Some(tunnel.home_address),
                local: tunnel.local.address(),
                remote: tunnel.remote.address(),
                remote_port: tunnel.remote.port(),
                bid: tunnel.bid,
                encapsulation: match tunnel.remote {
                    Endpoint::Ipv6(_) => "ipv6",
                    Endpoint::Ipv4(_) => "ipv4",
                    Endpoint::Udp(_) => "udp",
                }
                .into(),
                encryption: encryption_name(tunnel.session.is_some()).into(),
                mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
                path: "tun".into(),
                packets_in: traffic.packets_received,
                octets_in: traffic.octets_received,
                packets_out: traffic.packets_sent,
                octets_out: traffic.octets_sent,
            };
            (ends, status)
        });
        tunnels.collect()
    }

    /// Returns all counters, each by its dotted name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = Vec::new();
        if self.home_agent().is_some() || self.mobile_router().is_some() {
            let forwarder = self.slow_path_forwarder().counters();
            for (name, count) in [
                ("encapsulated", forwarder.encapsulated_packets),
                ("decapsulated", forwarder.decapsulated_packets),
                ("relayed", forwarder.relayed_packets),
                ("duplicated", forwarder.duplicated_packets),
                ("not_duplicated", forwarder.not_duplicated_packets),
                ("late", forwarder.late_packets),
                ("probes", self.path_mtus().counters().sent_probes),
                ("probes_answered", self.path_mtus().counters().answered_probes),
            ] {
                counters.push((format!("tunnel.{name}"), count));
            }
            for reason in TunnelDropReason::ALL {
                let count = forwarder.dropped.get(reason).copied().unwrap_or_default();
                counters.push((format!("tunnel.dropped.{}", reason.name()), count));
            }
            if let Some(agent) = self.home_agent() {
                let tests = agent.care_of_test_counters();
                counters.push(("mobility.care_of_tests".to_owned(), tests.sent_requests));
                counters.push(("mobility.care_of_tests_passed".to_owned(), tests.passed_tests));
            }
            for (kind, count) in self.messages_received() {
                counters.push((format!("mobility.received.{kind}"), *count));
            }
            for reason in carnet_mobility::MobilityDrop::ALL {
                let count = self.messages_dropped().get(reason).copied().unwrap_or_default();
                counters.push((format!("mobility.dropped.{}", reason.name()), count));
            }
        }
        if let Some(nesting) = self.nesting_state() {
            counters.push(("nesting.registered".to_string(), nesting.registered_address_count()));
            for reason in carnet_mobility::nesting::NestingDrop::ALL {
                let count = nesting.dropped().get(reason).copied().unwrap_or_default();
                counters.push((format!("nesting.dropped.{}", reason.name()), count));
            }
        }
        if let Some(neighbours) = self.neighbour_routes() {
            let counted = neighbours.counters();
            for (name, count) in [
                ("announced", counted.sent_announcements),
                ("received", counted.received_announcements),
                ("tests", counted.tests),
                ("tests_answered", counted.answered_tests),
                ("probes", counted.sent_probes),
                ("met", counted.begun_routes),
                ("parted", counted.ended_routes),
                ("diverted", self.diverted_packets()),
            ] {
                counters.push((format!("mnpp.{name}"), count));
            }
            for reason in carnet_mobility::mnpp::MnppDrop::ALL {
                counters.push((format!("mnpp.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(direct) = self.direct_routes() {
            let counted = direct.counters();
            for (name, count) in [
                ("tests", counted.tests),
                ("tests_answered", counted.answered_tests),
                ("registered", counted.accepted_own_updates),
                ("bound", counted.accepted_peer_updates),
                ("heartbeats", counted.sent_heartbeats),
                ("met", counted.begun_routes),
                ("parted", counted.ended_routes),
            ] {
                counters.push((format!("direct.{name}"), count));
            }
            for reason in carnet_mobility::direct::DirectDrop::ALL {
                counters.push((format!("direct.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        counters
    }
}
