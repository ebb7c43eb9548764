//! Converts the station's state to the API's types, and events to log texts.

use std::time::Duration;

use carnet_api::address::MacAddress;
use carnet_api::config::Config;
use carnet_api::model;
use carnet_base::{Endpoint, Time, WallTime};
use carnet_linux::sandbox::EnforcedLimits;
use carnet_linux::{Path, Platform};
use carnet_nemo::forwarding::desired::TunnelEnd;
use carnet_station::Station;
use carnet_station::io::DrainPhase;
use carnet_station::io::Event;

/// Answer to a query about GeoNetworking if the station has no GeoNetworking.
pub const NO_GEONET: &str = "this station does no GeoNetworking";

/// Answer to a query about security if the station neither signs nor verifies.
pub const NO_SECURITY: &str = "this station neither signs nor verifies: its config has no [security]";

/// Returns the answer to `GET /v1/status`.
pub fn status(
    config: &Config,
    platform: Option<&Platform>,
    station: &Station,
    geonet: Option<model::GeonetStatus>,
    sandbox: Option<&EnforcedLimits>,
    uptime: Duration,
    time: Time,
) -> model::Status {
    let now = station.nemo().status();
    let mut roles = Vec::new();
    if config.home_agent.is_some() {
        roles.push(model::Role::HomeAgent);
    }
    if let Some(router) = &config.mobile_router {
        roles.push(mobile_role(router.is_router()));
    }
    if config.geonet.is_some() {
        roles.push(model::Role::Geonet);
    }
    let active = station.nemo().uplink_status(time).into_iter().find(|uplink| uplink.active);
    model::Status {
        name: config.station.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_s: uptime.as_secs_f64(),
        roles,
        dataplane: platform.map(|platform| platform.path().name().into()),
        dataplane_loading: platform.and_then(Platform::loading).map(|path| path.name().into()),
        mobile_router: station.mobile_router().map(|router| model::MobileRouterStatus {
            state: now.mobile_router.unwrap_or_default().into(),
            reachable: Some(now.reachable),
            refusal: now.refusal.clone(),
            home_address: router.config().home_address,
            home_agent: router.config().home_agent,
            home_agents: {
                let known: Vec<_> =
                    station.nemo().agents().iter().flat_map(|agents| agents.known()).collect();
                let own = router.config().home_agent;
                let others = known.iter().map(|agent| agent.address);
                if known.is_empty() { vec![own] } else { others.collect() }
            },
            care_of_address: router.registration().map(|r| r.care_of_address),
            care_of_addresses: {
                let identified = router.bindings().iter().filter_map(|binding| binding.registration.as_ref());
                router.registration().into_iter().chain(identified).map(|r| r.care_of_address).collect()
            },
            prefixes: router.config().prefixes.clone(),
            lan: station
                .nemo()
                .lan_status()
                .into_iter()
                .map(|(interface, state)| model::LanInterface {
                    interface: interface.into(),
                    state: state.into(),
                })
                .collect(),
            uplink: active.map(|uplink| uplink.interface),
            wanted_uplink: router.forced_uplink().map(|uplink| uplink.config.interface.clone()),
            moved_policies: station
                .nemo()
                .policy_status()
                .into_iter()
                .filter_map(|policy| Some((policy.name, policy.wanted_uplink?)))
                .collect(),
        }),
        home_agent: station.home_agent().map(|agent| model::HomeAgentStatus {
            address: agent.config().address,
            bindings: now.home_agent_bindings.unwrap_or_default() as u64,
            keys_to_change: agent.keys_to_change().take(16).collect(),
        }),
        geonet,
        obstacles: platform.map(Platform::obstacles).unwrap_or_default(),
        sandbox: sandbox.map(|held| model::Sandbox {
            capabilities: held.capabilities.iter().map(|name| (*name).to_owned()).collect(),
            landlock: held.landlock,
            seccomp: held.seccomp,
            lacking: held.lacking.clone(),
        }),
    }
}

fn mobile_role(is_router: bool) -> model::Role {
    if is_router { model::Role::MobileRouter } else { model::Role::MobileNode }
}

/// Returns the answer to `GET /v1/bindings`.
pub fn bindings(station: &Station, now: Time) -> Vec<model::Binding> {
    let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
    station
        .nemo()
        .binding_status(now)
        .into_iter()
        .map(|binding| model::Binding {
            role: match binding.end {
                TunnelEnd::HomeAgent => model::Role::HomeAgent,
                // A direct route is not a binding with a home agent, and does not occur in this list.
                TunnelEnd::MobileRouter | TunnelEnd::Direct => {
                    mobile_role(station.mobile_router().is_none_or(|router| router.config().is_router()))
                }
            },
            home_address: binding.home_address,
            care_of_address: binding.care_of_address.map(Endpoint::address),
            udp_port: binding.care_of_address.and_then(Endpoint::port),
            stay_s: binding.stay.map(seconds),
            bid: binding.bid,
            prefixes: binding.prefixes,
            state: binding.state.into(),
            lifetime_s: seconds(binding.lifetime),
            remaining_s: seconds(binding.remaining),
            sequence: binding.sequence.unwrap_or_default(),
        })
        .collect()
}

/// Returns the answer to `GET /v1/security`.
pub fn security(station: &Station, now: Time) -> Option<model::Security> {
    let (state, counted) = (station.security_state(now)?, station.security()?.counters());
    let seconds = |date: WallTime| date.as_unix_nanos() / 1_000_000_000;
    let (tickets_now, tickets_later) = state.own_tickets;
    Some(model::Security {
        policy: state.policy.name().into(),
        ticket: state.ticket.map(|(name, from, until)| model::SecurityTicket {
            name: name.to_string(),
            from: seconds(from),
            until: seconds(until),
        }),
        tickets_now: tickets_now as u64,
        tickets_later: tickets_later as u64,
        tickets_until: state.until.map(seconds),
        issuers: state.issuers as u64,
        signers: state.tickets as u64,
        queued: state.queued.0 as u64,
        queue: state.queued.1 as u64,
        parked: state.parked.0 as u64,
        parking: state.parked.1 as u64,
        verifications_per_second: state.verifications_per_second,
        clock_ahead_ms: state
            .clock_ahead_ms
            .map(|ahead| i32::try_from(ahead).unwrap_or(if ahead > 0 { i32::MAX } else { i32::MIN })),
        received: counted.received,
        verified: counted.verified,
        copies: counted.copies,
        plain: counted.plain,
        verifications: counted.verifications,
        signed: counted.signed,
        dropped: counted.drops().map(|(reason, count)| (reason.to_owned(), count)).collect(),
    })
}

/// Returns the answer to `GET /v1/drain`.
pub fn drain(station: &Station) -> Option<model::Drain> {
    let drain = station.home_agent()?.drain()?;
    let state = match drain.phase {
        DrainPhase::Running => "running",
        DrainPhase::Done => "done",
        DrainPhase::Expired => "expired",
    };
    Some(model::Drain { state: state.into(), to: drain.to, routers: drain.nodes as u64, left: drain.left })
}

/// Returns the answer to `GET /v1/uplinks`.
pub fn uplinks(station: &Station, obstacles: &[String], now: Time) -> Vec<model::Uplink> {
    station
        .nemo()
        .uplink_status(now)
        .into_iter()
        .map(|uplink| model::Uplink {
            interface: uplink.interface,
            state: uplink.state,
            retry_s: uplink.again.map(|again| u32::try_from(again.as_secs()).unwrap_or(u32::MAX)),
            care_of_address: uplink.care_of_address,
            bid: uplink.bid,
            priority: u8::try_from(uplink.priority).unwrap_or(u8::MAX),
            signal_dbm: uplink.signal,
            rtt_ms: uplink.quality.map(|quality| quality.rtt.as_secs_f64() * 1000.0),
            loss: uplink.quality.map(|quality| quality.loss),
            capacity_kbit_s: uplink.capacity,
            captive_portal: uplink.captive_portal,
            volume_used: uplink.volume_used,
            volume: uplink.volume,
            volume_period: uplink.volume_period.name().into(),
            volume_action: uplink.volume_action.name().into(),
            roaming: uplink.roaming,
            active: uplink.active,
            full: uplink.full,
            silent_router: uplink.silent_router,
            obstacle: obstacles.first().cloned(),
        })
        .collect()
}

/// Returns the answer to `GET /v1/tunnels`.
pub fn tunnels(platform: Option<&Platform>, station: &Station) -> Vec<model::Tunnel> {
    let fast = platform.map(Platform::tunnel_traffic).unwrap_or_default();
    station
        .nemo()
        .tunnel_status()
        .into_iter()
        .map(|tunnel| {
            let fast = fast.get(&(tunnel.local, tunnel.remote)).copied().unwrap_or_default();
            (tunnel, fast)
        })
        .map(|(tunnel, fast)| model::Tunnel {
            home_address: Some(tunnel.home_address),
            local: tunnel.local.address(),
            remote: tunnel.remote.address(),
            remote_port: match tunnel.remote {
                Endpoint::Udp(remote) => Some(remote.port()),
                Endpoint::Ipv6(_) | Endpoint::Ipv4(_) => None,
            },
            bid: tunnel.bid,
            encapsulation: match tunnel.remote {
                Endpoint::Ipv6(_) => "ipv6",
                Endpoint::Ipv4(_) => "ipv4",
                Endpoint::Udp(_) => "udp",
            }
            .into(),
            mtu: u32::try_from(tunnel.mtu).unwrap_or(u32::MAX),
            path: platform
                .map_or(Path::Tun, |platform| platform.path_of(tunnel.local, tunnel.remote))
                .name()
                .into(),
            packets_in: tunnel.traffic.packets_in + fast.decapsulated_packets,
            octets_in: tunnel.traffic.octets_in + fast.decapsulated_octets,
            packets_out: tunnel.traffic.packets_out + fast.encapsulated_packets,
            octets_out: tunnel.traffic.octets_out + fast.encapsulated_octets,
        })
        .collect()
}

/// Returns the answer to `GET /v1/routes`.
pub fn routes(station: &Station, now: Time) -> Vec<model::Route> {
    let in_words = |address: [u8; 6]| MacAddress(address).to_string();
    station
        .nemo()
        .route_status(now)
        .into_iter()
        .map(|route| model::Route {
            prefix: route.prefix,
            path: route.path.into(),
            interface: route.interface,
            station: route.station.map(in_words),
            next_hop: route.next_hop,
            rtt_ms: route.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
            age_s: route.age.map(|age| age.as_secs_f64()),
            reason: route.reason,
        })
        .collect()
}

/// Returns the answer to `GET /v1/policies`.
pub fn policies(station: &Station) -> Vec<model::Policy> {
    station
        .nemo()
        .policy_status()
        .into_iter()
        .map(|policy| model::Policy {
            name: policy.name,
            action: policy.action.into(),
            selectors: policy.selectors,
            uplinks: policy.uplinks,
            wanted_uplink: policy.wanted_uplink,
            takes: policy.takes,
            home_agent: policy.home_agent.into(),
        })
        .collect()
}

/// Returns the answer to `GET /v1/counters`.
pub fn counters(station: &Station, platform: Option<&Platform>) -> model::Counters {
    let mut counters: model::Counters = station.counters().into_iter().collect();
    let Some(platform) = platform else { return counters };
    let fast_path = platform.fast_path_counters();
    for (name, count) in [
        ("tunnel.encapsulated", fast_path.total.encapsulated_packets),
        ("tunnel.decapsulated", fast_path.total.decapsulated_packets),
    ] {
        *counters.entry(name.into()).or_default() += count;
    }
    counters.extend(
        fast_path
            .left_to_slow_path
            .iter()
            .map(|(reason, count)| (format!("fast_path.left.{reason}"), *count)),
    );
    let platform = platform.counters();
    counters.extend([
        ("platform.writes".to_string(), platform.writes),
        ("platform.restored".to_string(), platform.restored),
        ("platform.overruns".to_string(), platform.overruns),
        ("platform.icmpv6_received".to_string(), platform.icmpv6_received),
        ("platform.icmpv6_malformed".to_string(), platform.icmpv6_malformed),
        ("platform.icmpv6_sent".to_string(), platform.icmpv6_sent),
        ("platform.datagrams_unsent".to_string(), platform.datagrams_unsent),
    ]);
    counters
}

/// Returns a Binding Identifier as part of a log text.
fn identified(bid: Option<u16>) -> String {
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
        Event::VolumeReached { uplink, percent, used, volume, period } => {
            format!("{uplink}: {percent} % of its volume of this {period} is used, {used} of {volume} octets")
        }
        Event::AtHome { interface } => format!("on the home link at {interface}"),
        Event::Binding { home_address, care_of_address, bid, prefixes, lifetime_s, change } => {
            let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
            format!(
                "binding {change}: {home_address}{} at {care_of_address} with {} for {lifetime_s} s",
                identified(*bid),
                if prefixes.is_empty() { "no prefix".into() } else { prefixes.join(", ") }
            )
        }
        Event::BindingRemoved { home_address, bid, reason } => {
            format!("binding of {home_address}{} ended: {reason}", identified(*bid))
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

#[cfg(test)]
mod tests;
