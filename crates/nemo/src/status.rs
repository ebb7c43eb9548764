//! The status of the NEMO plane, for operators.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{DropReason, Endpoint, Time};
use carnet_mobility::MobileRouter;
use carnet_mobility::flow::FlowAction;
use carnet_mobility::mobile_router::{
    Agreement, Attachment, Quality, Registration, Response, State, VolumeAction, VolumePeriod,
};
use ipnet::Ipv6Net;

use crate::drop_reason::TunnelDrop;
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::forwarder::Traffic;
use crate::plane::Nemo;

/// Status of a binding, at the mobile router or at the home agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingStatus {
    /// Role of this station.
    pub end: TunnelEnd,
    /// Home address of the binding.
    pub home_address: Ipv6Addr,
    /// Care-of address; `None` while the binding is not registered.
    pub care_of_address: Option<Endpoint>,
    /// Time since the node came to this care-of address, if known.
    pub stay: Option<Duration>,
    /// Binding Identifier; `None` for a binding without one.
    pub bid: Option<u16>,
    /// Prefixes of the binding.
    pub prefixes: Vec<Ipv6Net>,
    /// State of the binding: `registered`, `registering`, `disconnected`, `home`, `refused`, `stopped`. At a
    /// home agent also `untested`: the node has not yet answered at its care-of address.
    pub state: &'static str,
    /// Lifetime that the home agent has granted.
    pub lifetime: Duration,
    /// Remaining lifetime of the binding.
    pub remaining: Duration,
    /// Sequence number of the last Binding Update that was accepted (home agent) or acknowledged (mobile
    /// router).
    pub sequence: Option<u16>,
}

/// An uplink of the mobile router.
#[derive(Debug, Clone, PartialEq)]
pub struct UplinkStatus {
    /// Interface name.
    pub interface: String,
    /// State of the uplink: `active`, `standby`, `registering`, `silent`, `home`, or `refused: ` or `down: `
    /// with the reason. With `registering` the home agent may still answer. With `silent` the home agent does
    /// not answer over this uplink.
    pub state: String,
    /// Time until the router registers a silent or refused uplink again, if known.
    pub again: Option<Duration>,
    /// Care-of address of the uplink, if it has one.
    pub care_of_address: Option<IpAddr>,
    /// Binding Identifier of the uplink, if it has one.
    pub bid: Option<u16>,
    /// Configured priority, lower wins.
    pub priority: u32,
    /// Signal strength in dBm, if measured.
    pub signal: Option<i32>,
    /// Path quality from heartbeats; `None` for an uplink that is down or silent.
    pub quality: Option<Quality>,
    /// Capacity in kbit/s, configured or measured.
    pub capacity: Option<u32>,
    /// URI of the captive portal that the access network redirects HTTP to, or announces.
    pub captive_portal: Option<String>,
    /// Octets used in the present period of the volume limit; `None` until they have been counted.
    pub volume_used: Option<u64>,
    /// Limit of octets in a period.
    pub volume: Option<u64>,
    /// Period to which the volume limit applies.
    pub volume_period: VolumePeriod,
    /// Action of the router when the volume limit is reached.
    pub volume_action: VolumeAction,
    /// Whether the uplink's modem is roaming, in the network of another operator; `None` if unknown.
    pub roaming: Option<bool>,
    /// Whether the uplink carries the traffic.
    pub active: bool,
    /// Whether the uplink is overloaded: round trips have grown by seconds, but packets still arrive.
    pub full: bool,
    /// Router of the care-of address, if this router does not answer either.
    pub silent_router: Option<IpAddr>,
}

/// A policy of the mobile router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStatus {
    /// Name of the policy.
    pub name: String,
    /// Action of the policy: `failover`, `duplicate` or `balance`.
    pub action: &'static str,
    /// Number of traffic selectors of the policy.
    pub selectors: usize,
    /// Configured uplinks of the policy, the preferred one first.
    pub uplinks: Vec<String>,
    /// Uplink that an operator has selected for this policy.
    pub wanted_uplink: Option<String>,
    /// Uplinks that the policy's packets use now; if empty, they use the uplinks of packets without a policy.
    pub takes: Vec<String>,
    /// Answer of the home agent to the flow binding: `agreed`, `asked`, `refused`, `unknown` (it does not
    /// support flow bindings) or `failover` (it supports only this action).
    pub home_agent: &'static str,
}

/// A tunnel of the station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelStatus {
    /// Home address of the binding.
    pub home_address: Ipv6Addr,
    /// Binding Identifier of the binding, if it has one.
    pub bid: Option<u16>,
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel.
    pub remote: Endpoint,
    /// Largest inner packet that needs no outer fragments, in octets.
    pub mtu: usize,
    /// Whether the station sends packets into the tunnel; otherwise it only accepts packets from the tunnel.
    pub transmit: bool,
    /// Counters of the tunnel's packets on the slow path.
    pub traffic: Traffic,
}

/// Route of a mobile router to a network, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteStatus {
    /// Destination network; `::/0` for all networks without a route of their own.
    pub prefix: Ipv6Net,
    /// Path of the packets: `direct` to the vehicle with this network, through the `home_agent`, on the
    /// `home` link, or `none`.
    pub path: &'static str,
    /// Outgoing interface: the interface of IPv6 over GeoNetworking, or the uplink.
    pub interface: Option<String>,
    /// Link-layer address of the vehicle that announces the network.
    pub station: Option<[u8; 6]>,
    /// Next hop: the vehicle's link-local address, on a direct route the vehicle's care-of address, or the
    /// home agent.
    pub next_hop: Option<Ipv6Addr>,
    /// Round-trip time to the vehicle.
    pub rtt: Option<Duration>,
    /// Time since the route was installed, if known.
    pub age: Option<Duration>,
    /// Reason for the path, in plain words.
    pub reason: String,
}

/// State of each role of the plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NemoStatus {
    /// State of the mobile router; `None` if the station has no mobile router.
    pub mobile_router: Option<&'static str>,
    /// Whether the mobile router can reach its home agent. Either the router is at home, or the home agent
    /// answers over an uplink or may still answer. A registration outlives its uplinks for up to its
    /// lifetime.
    pub reachable: bool,
    /// Reason why the home agent refuses the mobile router: the status of the home agent's answer and its
    /// meaning.
    pub refusal: Option<String>,
    /// Number of bindings at the home agent; `None` if the station has no home agent.
    pub home_agent_bindings: Option<usize>,
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

impl Nemo {
    /// Returns the state of each role.
    pub fn status(&self) -> NemoStatus {
        let leads = |router: &MobileRouter, index, attachment: &Attachment| match attachment {
            Attachment::Down(_) => false,
            Attachment::Home { .. } => true,
            Attachment::Foreign { .. } => {
                !matches!(router.response(index), Response::Silent { .. } | Response::Refused { .. })
            }
        };
        let reachable = |router: &MobileRouter| {
            let mut uplinks = router.uplinks().iter().enumerate();
            uplinks.any(|(index, uplink)| leads(router, index, &uplink.attachment))
        };
        NemoStatus {
            mobile_router: self.mobile_router().map(|router| state_name(router.state())),
            reachable: self.mobile_router().is_some_and(reachable),
            refusal: self.mobile_router().and_then(|router| match router.state() {
                State::Refused(status) => Some(format!("status {}, {}", status.0, status.meaning())),
                _ => None,
            }),
            home_agent_bindings: self.home_agent().map(|agent| agent.bindings().iter().count()),
        }
    }

    /// Returns all bindings: the bindings of the home agent, then the bindings of the mobile router.
    pub fn binding_status(&self, now: Time) -> Vec<BindingStatus> {
        let mut bindings: Vec<BindingStatus> = self
            .home_agent()
            .into_iter()
            .flat_map(|agent| agent.bindings().iter())
            .map(|binding| BindingStatus {
                end: TunnelEnd::HomeAgent,
                home_address: binding.home_address,
                care_of_address: Some(binding.care_of_address),
                stay: binding.care_of_address_age.length(now),
                bid: binding.bid,
                prefixes: binding.prefixes.to_vec(),
                state: if binding.care_of_tested { "registered" } else { "untested" },
                lifetime: binding.lifetime,
                remaining: binding.expires.saturating_since(now),
                sequence: Some(binding.sequence),
            })
            .collect();
        if let Some(router) = self.mobile_router() {
            let own = |registration: Option<&Registration>, bid, state| BindingStatus {
                end: TunnelEnd::MobileRouter,
                home_address: router.config().home_address,
                care_of_address: registration.map(|r| r.care_of_address.into()),
                stay: registration.map(|r| now.saturating_since(r.since)),
                bid,
                prefixes: router.config().prefixes.clone(),
                state,
                lifetime: registration.map_or(Duration::ZERO, |r| r.lifetime),
                remaining: registration.map_or(Duration::ZERO, |r| r.expires.saturating_since(now)),
                sequence: registration.map(|r| r.sequence),
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
    pub fn uplink_status(&self, now: Time) -> Vec<UplinkStatus> {
        let Some(router) = self.mobile_router() else { return Vec::new() };
        let active = router.active_uplink();
        let response = |index| match router.response(index) {
            Response::Silent { again } => ("silent", again.map(|again| again.saturating_since(now))),
            Response::Refused { again } => ("refused", again.map(|again| again.saturating_since(now))),
            _ if active == Some(index) => ("active", None),
            Response::Asked => ("registering", None),
            Response::Answers => ("standby", None),
        };
        router
            .uplinks()
            .iter()
            .enumerate()
            .map(|(index, uplink)| UplinkStatus {
                interface: uplink.config.interface.clone(),
                state: match uplink.attachment {
                    Attachment::Down(reason) => format!("down: {reason}"),
                    Attachment::Home { .. } => "home".into(),
                    Attachment::Foreign { .. } => match (response(index).0, router.refusal()) {
                        ("refused", Some(why)) => format!("refused: {why}"),
                        (state, _) => state.into(),
                    },
                },
                again: match uplink.attachment {
                    Attachment::Foreign { .. } => response(index).1,
                    Attachment::Down(_) | Attachment::Home { .. } => None,
                },
                care_of_address: uplink.care_of_addresses().first().copied(),
                bid: uplink.config.bid,
                priority: uplink.config.priority,
                signal: uplink.signal,
                quality: match (&uplink.attachment, router.response(index)) {
                    (Attachment::Foreign { .. }, Response::Answers | Response::Asked) => {
                        router.quality(index)
                    }
                    _ => None,
                },
                capacity: uplink.capacity,
                captive_portal: uplink.captive_portal().map(str::to_owned),
                volume_used: uplink.volume_used(),
                volume: uplink.config.volume,
                volume_period: uplink.config.volume_period,
                volume_action: uplink.config.volume_action,
                roaming: uplink.roaming,
                active: active == Some(index),
                full: router.is_full(index),
                silent_router: uplink.silent_router(),
            })
            .collect()
    }

    /// Returns the policies of the mobile router, in the order of the config.
    pub fn policy_status(&self) -> Vec<PolicyStatus> {
        let policies = self.mobile_router().map(MobileRouter::policy_status).unwrap_or_default();
        policies
            .into_iter()
            .map(|policy| PolicyStatus {
                name: policy.name.into(),
                action: match policy.action {
                    FlowAction::Failover => "failover",
                    FlowAction::Duplicate => "duplicate",
                    FlowAction::Balance => "balance",
                },
                selectors: policy.selectors,
                uplinks: policy.uplinks.to_vec(),
                wanted_uplink: policy.chosen.and_then(|chosen| chosen.first().cloned()),
                takes: policy.takes.into_iter().map(str::to_owned).collect(),
                home_agent: match policy.agreement {
                    Agreement::Agreed => "agreed",
                    Agreement::Asked => "asked",
                    Agreement::Refused => "refused",
                    Agreement::Unknown => "unknown",
                    Agreement::Failover => "failover",
                },
            })
            .collect()
    }

    /// Returns the interfaces of the mobile network with their state: `up`, `no_carrier` or
    /// `no_such_interface`.
    pub fn lan_status(&self) -> Vec<(&str, &'static str)> {
        let lan = self.lan().iter().map(|name| {
            let state = match self.interface(name) {
                Some(interface) if interface.running => "up",
                Some(_) => "no_carrier",
                None => "no_such_interface",
            };
            (name.as_str(), state)
        });
        lan.collect()
    }

    /// Returns the routes of a mobile router: first the networks of nearby vehicles, in order, then the
    /// default route.
    pub fn route_status(&self, now: Time) -> Vec<RouteStatus> {
        let Some(router) = self.mobile_router() else { return Vec::new() };
        let active = self.uplink_status(now).into_iter().find(|uplink| uplink.active);
        let path = match router.state() {
            State::Home => "home",
            State::Registered => "home_agent",
            _ if active.is_some() => "home_agent",
            _ => "none",
        };
        let interface = active.map(|uplink| uplink.interface);
        let home = RouteStatus {
            prefix: Ipv6Net::default(),
            path,
            next_hop: (path == "home_agent").then_some(router.config().home_agent),
            interface,
            station: None,
            rtt: None,
            age: None,
            reason: state_name(router.state()).into(),
        };
        let mut routes: Vec<RouteStatus> = self
            .neighbours()
            .into_iter()
            .flat_map(|neighbours| neighbours.prefix_routes())
            .map(|way| RouteStatus {
                prefix: way.prefix,
                station: Some(way.station),
                rtt: way.rtt,
                age: Some(now.saturating_since(way.since)),
                reason: way.reason.into(),
                ..match way.direct {
                    true => RouteStatus {
                        path: "direct",
                        interface: self.neighbour_interface().map(str::to_owned),
                        next_hop: Some(way.link_local),
                        ..home.clone()
                    },
                    false => home.clone(),
                }
            })
            .collect();
        for route in self.direct().into_iter().flat_map(|direct| direct.routes()) {
            let over = router.uplinks().iter().find(|uplink| {
                route.local.is_some_and(|local| uplink.care_of_addresses().contains(&local.into()))
            });
            let interface = over.map(|uplink| uplink.config.interface.clone());
            for prefix in &route.prefixes {
                routes.push(RouteStatus {
                    prefix: *prefix,
                    rtt: route.rtt,
                    age: Some(now.saturating_since(route.since)),
                    reason: route.reason.into(),
                    ..match route.direct {
                        true => RouteStatus {
                            path: "direct",
                            interface: interface.clone(),
                            next_hop: route.remote,
                            ..home.clone()
                        },
                        false => home.clone(),
                    }
                });
            }
        }
        routes.sort_by_key(|route| (route.prefix, route.path, route.station));
        routes.push(home);
        routes
    }

    /// Returns all tunnels of the station.
    pub fn tunnel_status(&self) -> Vec<TunnelStatus> {
        let mut tunnels: Vec<TunnelStatus> = self
            .forwarder()
            .tunnels()
            .map(|(tunnel, mtu)| TunnelStatus {
                home_address: tunnel.home_address,
                bid: tunnel.bid,
                local: tunnel.local,
                remote: tunnel.remote,
                mtu,
                transmit: tunnel.transmit,
                traffic: self.forwarder().traffic((tunnel.local, tunnel.remote)),
            })
            .collect();
        tunnels.sort_by_key(|t| (!t.transmit, t.local, t.remote));
        tunnels
    }

    /// Returns all counters, each by its dotted name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = Vec::new();
        if self.home_agent().is_some() || self.mobile_router().is_some() {
            let forwarder = self.forwarder().counters();
            for (name, count) in [
                ("encapsulated", forwarder.encapsulated),
                ("decapsulated", forwarder.decapsulated),
                ("relayed", forwarder.relayed),
                ("duplicated", forwarder.duplicated),
                ("not_duplicated", forwarder.not_duplicated),
                ("late", forwarder.late),
                ("probes", self.path_mtus().counters().sent),
                ("probes_answered", self.path_mtus().counters().answered),
            ] {
                counters.push((format!("tunnel.{name}"), count));
            }
            for reason in TunnelDrop::ALL {
                let count = forwarder.dropped.get(reason).copied().unwrap_or_default();
                counters.push((format!("tunnel.dropped.{}", reason.name()), count));
            }
            if let Some(agent) = self.home_agent() {
                let tests = agent.care_of_test_counters();
                counters.push(("mobility.care_of_tests".to_owned(), tests.sent));
                counters.push(("mobility.care_of_tests_passed".to_owned(), tests.passed));
            }
            for (kind, count) in self.messages_received() {
                counters.push((format!("mobility.received.{kind}"), *count));
            }
            for reason in carnet_mobility::MobilityDrop::ALL {
                let count = self.messages_dropped().get(reason).copied().unwrap_or_default();
                counters.push((format!("mobility.dropped.{}", reason.name()), count));
            }
        }
        if let Some(nesting) = self.nesting() {
            counters.push(("nesting.registered".to_string(), nesting.registered()));
            for reason in carnet_mobility::nesting::NestingDrop::ALL {
                let count = nesting.dropped().get(reason).copied().unwrap_or_default();
                counters.push((format!("nesting.dropped.{}", reason.name()), count));
            }
        }
        if let Some(neighbours) = self.neighbours() {
            let counted = neighbours.counters();
            for (name, count) in [
                ("announced", counted.announced),
                ("received", counted.received),
                ("tests", counted.tests),
                ("tests_answered", counted.tests_answered),
                ("probes", counted.probes),
                ("met", counted.met),
                ("parted", counted.parted),
                ("diverted", self.diverted()),
            ] {
                counters.push((format!("mnpp.{name}"), count));
            }
            for reason in carnet_mobility::mnpp::MnppDrop::ALL {
                counters.push((format!("mnpp.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(direct) = self.direct() {
            let counted = direct.counters();
            for (name, count) in [
                ("tests", counted.tests),
                ("tests_answered", counted.tests_answered),
                ("registered", counted.registered),
                ("bound", counted.bound),
                ("heartbeats", counted.heartbeats),
                ("met", counted.met),
                ("parted", counted.parted),
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
