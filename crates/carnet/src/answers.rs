//! Completes the status of the station's parts (home agent, mobile router, GeoNetworking) with facts that
//! only the program and the platform know. Also writes the log texts of events.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_api::config::Config;
use carnet_api::model;
use carnet_base::Time;
use carnet_lan::dhcpv4::DhcpLeaseStatus;
use carnet_linux::Platform;
use carnet_linux::sandbox::EnforcedLimits;
use carnet_nemo::forwarding::packet_rules::{CountedTraffic, PacketCount, TrafficKind};
use carnet_nemo::status::AddressFamily;
use carnet_station::Station;
use carnet_station::io::Event;
use carnet_wire::address::MacAddress;
use carnet_wire::mobility::BindingStatus;
use ipnet::{Ipv4Net, Ipv6Net};

use crate::lan::{LanLink, LanServices};

/// Answer to a query about GeoNetworking if the station has no GeoNetworking.
pub const ERROR_NO_GEONET: &str = "this station does no GeoNetworking";

/// Answer to a query about security if the station neither signs nor verifies.
pub const ERROR_NO_SECURITY: &str = "this station neither signs nor verifies: its config has no [security]";

/// Returns the answer to `GET /v1/status`.
pub fn station_status(
    config: &Config,
    platform: Option<&Platform>,
    station: &Station,
    geonet: Option<model::GeonetStatus>,
    sandbox: Option<&EnforcedLimits>,
    traffic: &TrafficCounts,
    uptime: Duration,
) -> model::Status {
    let mut roles = Vec::new();
    if config.home_agent.is_some() {
        roles.push(model::Role::HomeAgent);
    }
    if let Some(router) = &config.mobile_router {
        roles.push(if router.is_router() { model::Role::MobileRouter } else { model::Role::MobileNode });
    }
    if config.geonet.is_some() {
        roles.push(model::Role::Geonet);
    }
    model::Status {
        name: config.station.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_s: uptime.as_secs_f64(),
        roles,
        dataplane: platform.map(|platform| platform.data_path().name().into()),
        dataplane_loading: platform.and_then(Platform::path_being_loaded).map(|path| path.name().into()),
        encryption: config.describe_encryption(),
        mobile_router: station.nemo().mobile_router_status(),
        home_agent: station
            .nemo()
            .home_agent_status()
            .map(|agent| home_agent_status(agent, platform, traffic)),
        geonet,
        obstacles: platform.map(Platform::obstacle_messages).unwrap_or_default(),
        sandbox: sandbox.map(|held| model::Sandbox {
            capabilities: held.remaining_capabilities.iter().map(|name| (*name).to_owned()).collect(),
            landlock: held.landlock_abi,
            seccomp: held.seccomp_enabled,
            lacking: held.missing_limits.clone(),
        }),
    }
}

/// Returns the status of the home agent, with the platform's status of the NAT.
fn home_agent_status(
    mut agent: model::HomeAgentStatus,
    platform: Option<&Platform>,
    traffic: &TrafficCounts,
) -> model::HomeAgentStatus {
    let failure = match platform {
        Some(platform) => platform.packet_rules_failure().map(str::to_owned),
        None => Some("the station has no tunnels".to_owned()),
    };
    for nat in &mut agent.nat {
        let kind = match nat.family {
            AddressFamily::Ipv4 => TrafficKind::Ipv4Nat,
            AddressFamily::Ipv6 => TrafficKind::Ipv6Nat,
        };
        nat.translated = traffic_by_interface(traffic, &kind).remove(&nat.interface).unwrap_or_default();
        (nat.in_force, nat.failure) = (failure.is_none(), failure.clone());
    }
    agent
}

/// Returns the answer to `GET /v1/lan`.
pub fn lan_status(config: &Config, station: &Station, services: &LanServices, now: Time) -> Vec<model::Lan> {
    let Some(router) = &config.mobile_router else { return Vec::new() };
    let mut known: BTreeMap<String, model::LanInterface> =
        station.nemo().lan_status().into_iter().map(|lan| (lan.interface.clone(), lan)).collect();
    let lans = router.lans_with_ipv4_prefix().map(|(lan, ipv4_prefix)| {
        let interface = lan.interface.as_str();
        let link = services.service_links().iter().find(|link| link.name == interface);
        let status = known.remove(interface).unwrap_or_else(|| model::LanInterface {
            interface: interface.to_owned(),
            state: "no_such_interface".to_owned(),
            inbound: String::new(),
            allow: Vec::new(),
            isolated: false,
            closed: None,
        });
        model::Lan {
            interface: status.interface,
            state: status.state,
            inbound: status.inbound,
            allow: status.allow,
            isolated: status.isolated,
            closed: status.closed,
            ipv4_prefix,
            advertisement: station.nemo().lan_advertisement(interface),
            dhcp: link.map(dhcp_status),
            dns: services
                .dns_addresses(interface)
                .into_iter()
                .map(|(address, failure)| model::LanDns { address, failure })
                .collect(),
            delegate: services
                .prefix_delegator()
                .delegating_interface(interface)
                .map(|delegating| delegating.prefix_length),
            delegated: delegated_prefixes(services, interface, now),
            hosts: link
                .iter()
                .flat_map(|link| link.dhcp_server.active_leases(now))
                .map(lan_host_of_lease)
                .collect(),
        }
    });
    lans.collect()
}

fn dhcp_status(link: &LanLink) -> model::LanDhcp {
    let (config, (addresses, free)) =
        (link.dhcp_server.config(), link.dhcp_server.total_and_free_addresses());
    let (first, last) = config.address_range;
    model::LanDhcp {
        address: link.dhcp_server.address(),
        first,
        last,
        addresses: addresses as u64,
        free: free as u64,
        lease_s: config.lease_time.as_secs(),
        failure: link.open_failure.clone(),
        other_server: link.dhcp_server.other_server(),
    }
}

/// Returns the prefixes that carnet has delegated to routers on an interface (DHCPv6).
fn delegated_prefixes(services: &LanServices, interface: &str, now: Time) -> Vec<model::LanDelegation> {
    let delegations = services.prefix_delegator().delegations();
    let here = delegations.filter(|delegation| delegation.client.interface == interface);
    let delegated = here.map(|delegation| model::LanDelegation {
        prefix: delegation.prefix,
        router: delegation.router_address,
        duid: carnet_base::hex::encode(&delegation.client.duid),
        remaining_s: delegation.delegation_ends_at.saturating_since(now).as_secs(),
    });
    delegated.collect()
}

fn lan_host_of_lease(lease: DhcpLeaseStatus) -> model::LanHost {
    model::LanHost {
        address: lease.address,
        mac: MacAddress(lease.link_address).to_string(),
        name: lease.host_name,
        remaining_s: lease.remaining_time.as_secs(),
        reserved: lease.is_reserved,
    }
}

/// Traffic that rules of the packet filter have counted.
pub type TrafficCounts = BTreeMap<CountedTraffic, PacketCount>;

/// Returns the traffic of one kind by interface.
fn traffic_by_interface(
    traffic: &TrafficCounts,
    kind: &TrafficKind,
) -> BTreeMap<String, model::OutsideCount> {
    let mut found: BTreeMap<String, model::OutsideCount> = BTreeMap::new();
    for (of, count) in traffic.iter().filter(|(of, _)| of.kind == *kind) {
        let sum = found.entry(of.interface.clone()).or_default();
        let (packets, octets) = match of.is_outgoing {
            true => (&mut sum.packets_out, &mut sum.octets_out),
            false => (&mut sum.packets_in, &mut sum.octets_in),
        };
        (*packets, *octets) = (count.packets, count.octets);
    }
    found
}

/// Returns the answer to `GET /v1/uplinks`: the station's uplinks. Each has the first fault that this machine
/// reports about it, and its traffic to captive portals.
pub fn uplink_status(
    station: &Station,
    obstacles: &[String],
    traffic: &TrafficCounts,
    now: Time,
) -> Vec<model::Uplink> {
    let mut portals = traffic_by_interface(traffic, &TrafficKind::Portal);
    let uplinks = station.nemo().uplink_status(now).into_iter();
    uplinks
        .map(|uplink| model::Uplink {
            obstacle: obstacles.first().cloned(),
            portal_outside: portals.remove(&uplink.interface),
            ..uplink
        })
        .collect()
}

/// Returns the answer to `GET /v1/policies`: the station's policies, each with the traffic that left without
/// the tunnel.
pub fn policy_status(station: &Station, traffic: &TrafficCounts) -> Vec<model::Policy> {
    let policies = station.nemo().policy_status().into_iter();
    policies
        .map(|policy| {
            let outside = traffic_by_interface(traffic, &TrafficKind::Policy(policy.name.clone()));
            model::Policy { outside, ..policy }
        })
        .collect()
}

/// Returns the answer to `GET /v1/tunnels`: the station's tunnels, each with its data path and the packets
/// that the fast path counted.
pub fn tunnel_status(platform: Option<&Platform>, station: &Station) -> Vec<model::Tunnel> {
    let tunnels = station.nemo().tunnel_status().into_iter();
    let Some(platform) = platform else { return tunnels.map(|(_, tunnel)| tunnel).collect() };
    let fast = platform.tunnel_traffic();
    let tunnels = tunnels.map(|(ends, mut tunnel)| {
        let fast = fast.get(&ends).copied().unwrap_or_default();
        tunnel.path = platform.data_path_of(ends.0, ends.1).name().into();
        tunnel.packets_in += fast.decapsulated_packets;
        tunnel.octets_in += fast.decapsulated_octets;
        tunnel.packets_out += fast.encapsulated_packets;
        tunnel.octets_out += fast.encapsulated_octets;
        tunnel
    });
    tunnels.collect()
}

/// Returns the answer to `GET /v1/counters`.
pub fn counters(station: &Station, platform: Option<&Platform>) -> model::Counters {
    let mut counters: model::Counters = station.counters().into_iter().collect();
    let Some(platform) = platform else { return counters };
    let fast_path = platform.fast_path_counters();
    for (name, count) in [
        ("tunnel.encapsulated", fast_path.total_traffic.encapsulated_packets),
        ("tunnel.decapsulated", fast_path.total_traffic.decapsulated_packets),
    ] {
        *counters.entry(name.into()).or_default() += count;
    }
    counters.extend(
        fast_path
            .slow_path_packets_by_reason
            .iter()
            .map(|(reason, count)| (format!("fast_path.left.{reason}"), *count)),
    );
    let platform = platform.counters();
    counters.extend([
        ("platform.writes".to_string(), platform.write_calls),
        ("platform.restored".to_string(), platform.restored_entries),
        ("platform.overruns".to_string(), platform.event_overruns),
        ("platform.icmpv6_received".to_string(), platform.icmpv6_received),
        ("platform.icmpv6_malformed".to_string(), platform.icmpv6_malformed),
        ("platform.icmpv6_sent".to_string(), platform.icmpv6_sent),
        ("platform.datagrams_unsent".to_string(), platform.unsent_datagrams),
    ]);
    counters
}

/// Returns a Binding Identifier as part of a log text.
fn binding_identifier_text(bid: Option<u16>) -> String {
    bid.map(|bid| format!(" (bid {bid})")).unwrap_or_default()
}

/// Returns the log text of an event.
pub fn event_text(event: &Event) -> String {
    match event {
        Event::Registered { home_agent, care_of_address, bid, uplink, latency_us, lifetime_s, refresh } => {
            let verb = if *refresh { "registration renewed" } else { "registered" };
            let milliseconds = *latency_us as f64 / 1000.0;
            format!(
                "{verb} at {home_agent} with {care_of_address} on {uplink}{} in {milliseconds:.1} ms for \
                 {lifetime_s} s",
                bid.map_or(String::new(), |bid| format!(" (BID {bid})"))
            )
        }
        Event::Deregistered { reason } => format!("no longer registered: {reason}"),
        Event::Rejected { status, reason } => format!("the home agent said no (status {status}): {reason}"),
        Event::HomeAgent { from, to, reason } => {
            let from = from.map_or("none".into(), |from| from.to_string());
            format!("home agent {to} instead of {from}: {reason}")
        }
        Event::Handover { from, to, reason } => {
            let name = |uplink: &Option<String>| uplink.clone().unwrap_or("no uplink".into());
            format!("traffic moves from {} to {}: {reason}", name(from), name(to))
        }
        Event::Uplink { uplink, reason, .. } => match reason {
            Some(reason) => format!("uplink {uplink} cannot be used any more: {reason}"),
            None => format!("uplink {uplink} can be used"),
        },
        Event::Path { prefixes, station, direct, reason } => {
            let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
            let what = match prefixes.as_slice() {
                [] => "packets".to_string(),
                prefixes => format!("packets for {}", prefixes.join(", ")),
            };
            let way = if *direct { "go straight to it" } else { "take the tunnel" };
            format!("station {station} {reason}: {what} {way}")
        }
        Event::CaptivePortal { uplink, uri, redirects: false } => {
            format!("{uplink}: the access network announces a captive portal, {uri}")
        }
        Event::CaptivePortal { uplink, uri, redirects: true } => format!(
            "{uplink}: captive portal {uri}: the access network redirects HTTP, and the home agent does not \
             answer"
        ),
        Event::PortalAccess { uplink, interface, host, for_s, dns } => {
            let dns: Vec<String> = dns.iter().map(ToString::to_string).collect();
            let servers = match dns.as_slice() {
                [] => "no DNS server of the uplink is known".to_owned(),
                dns => format!("DNS at {}", dns.join(", ")),
            };
            format!(
                "{uplink}: host {host} at {interface} has access to the captive portal for {for_s} s; \
                 {servers}"
            )
        }
        Event::PortalAccessEnded { uplink, host, reason } => {
            format!("{uplink}: access of host {host} to the captive portal has ended: {reason}")
        }
        Event::VolumeReached { uplink, percent, used, volume, period } => {
            format!("{uplink}: {percent} % of its volume of this {period} is used, {used} of {volume} octets")
        }
        Event::AtHome { interface } => format!("on the home link at {interface}"),
        Event::Ipv4Prefix { prefix, home_agent, accepted: true, .. } => {
            format!("home agent {home_agent} forwards packets of the IPv4 prefix {prefix}")
        }
        Event::Ipv4Prefix { prefix, home_agent, reason, .. } => {
            format!("no tunnel for the IPv4 prefix {prefix}: home agent {home_agent}: {reason}")
        }
        Event::Binding {
            home_address,
            care_of_address,
            bid,
            prefixes,
            ipv4_prefixes,
            lifetime_s,
            change,
        } => {
            format!(
                "binding {change}: {home_address}{} at {care_of_address} with {} for {lifetime_s} s",
                binding_identifier_text(*bid),
                describe_networks(prefixes, ipv4_prefixes)
            )
        }
        Event::BindingRemoved { home_address, bid, reason } => {
            format!("binding of {home_address}{} ended: {reason}", binding_identifier_text(*bid))
        }
        Event::BindingRefused { home_address, care_of_address, status, .. }
            if *status == BindingStatus::NOT_HOME_AGENT.0 =>
        {
            format!(
                "de-registration of {home_address} from {care_of_address}: it has no such binding any more \
                 (status {status})"
            )
        }
        Event::BindingRefused { home_address, care_of_address, status, reason } => {
            format!("refused {home_address} at {care_of_address} (status {status}): {reason}")
        }
        Event::Reloaded { added, removed, changed } => {
            let kinds = [("added", added), ("removed", removed), ("changed", changed)];
            let kinds = kinds.iter().filter(|(_, names)| !names.is_empty());
            let parts: Vec<String> =
                kinds.map(|(kind, names)| format!("{kind} {}", names.join(", "))).collect();
            format!("the config has changed: {}", parts.join("; "))
        }
        Event::Warning { message } => message.clone(),
    }
}

/// Returns whether the log warns of an event.
pub fn is_warning(event: &Event) -> bool {
    match event {
        // A home agent refuses only a de-registration with this status, if it has no binding (RFC 6275
        // 10.3.2). This is harmless: a mobile router repeats a de-registration whose acknowledgement was
        // lost.
        Event::BindingRefused { status, .. } => *status != BindingStatus::NOT_HOME_AGENT.0,
        Event::Warning { .. }
        | Event::Ipv4Prefix { accepted: false, .. }
        | Event::Rejected { .. }
        | Event::CaptivePortal { .. }
        | Event::VolumeReached { .. } => true,
        _ => false,
    }
}

/// Returns the networks of a binding as text for people. A single IPv4 address without other networks is the
/// IPv4 home address of a mobile node.
fn describe_networks(prefixes: &[Ipv6Net], ipv4_prefixes: &[Ipv4Net]) -> String {
    match (prefixes, ipv4_prefixes) {
        ([], []) => "no prefix".into(),
        ([], [home]) if home.prefix_len() == 32 => format!("IPv4 home address {}", home.addr()),
        _ => {
            let ipv4 = ipv4_prefixes.iter().map(ToString::to_string);
            prefixes.iter().map(ToString::to_string).chain(ipv4).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests;
