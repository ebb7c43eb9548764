//! Checks between values of different tables of a config file. Other modules check values within one table,
//! and the declaration of a key checks its value alone.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use super::conflicts::refuse_taken_interface;
use super::document::UncheckedConfig;
use super::errors::ErrorSink;
use super::reader::Located;
use super::{Auth, DataplanePath, PublicKey, geonet, home_agent, mobile_router, security};

/// Reports all conflicts between tables.
pub(super) fn check_between_tables(draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    if !draft.has_role {
        sink.push(
            0,
            "the station has no role, expected [home_agent], [mobile_router], [mobile_node] or [geonet]",
        );
    }
    if let Some(agent) = &draft.home_agent {
        agent.check_values(sink);
    }
    if let Some(router) = &draft.mobile_router {
        router.check_values(draft.home_agent.is_some(), sink);
    }
    check_ipsec(draft, sink);
    check_sessions(draft, sink);
    if let (Some(agent), Some(router)) = (&draft.home_agent, &draft.mobile_router) {
        check_both_roles(agent, router, sink);
    }
    if let Some(conformance) = draft.conformance.as_ref().filter(|_| draft.geonet.is_none()) {
        sink.push(
            conformance.table_offset,
            "the upper tester needs GeoNetworking, expected a section [geonet]",
        );
    }
    if let Some(facilities) = draft.facilities.as_ref().filter(|_| draft.geonet.is_none()) {
        sink.push(facilities.table_offset, "the facilities need GeoNetworking, expected a section [geonet]");
    }
    if let Some(security) = &draft.security {
        if draft.geonet.is_none() {
            sink.push(
                security.table_offset,
                "only GeoNetworking packets are signed, expected a section [geonet]",
            );
        }
        if security.has_no_roots() {
            sink.push(
                security.table_offset,
                "without a trusted root the station would accept no message, expected at least one root in \
                 `security.roots`",
            );
        }
        check_pseudonyms(security, draft, sink);
    }
    if let Some(geonet) = &draft.geonet {
        check_radio_interface(geonet, draft, sink);
        check_area_names(geonet, sink);
        check_ipv6_interfaces(geonet, draft, sink);
        check_mnpp_interface(geonet, draft, sink);
    }
}

/// Checks that a station with pseudonyms has tickets, and no fixed address or number.
fn check_pseudonyms(security: &security::UncheckedSecurity, draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let Some(at) = security.pseudonyms_offset else { return };
    if security.has_no_tickets() {
        sink.push(at, "a pseudonym needs tickets, expected `security.tickets`");
    }
    if draft.geonet.as_ref().is_some_and(|geonet| !geonet.is_anonymous) {
        sink.push(at, "each pseudonym needs a new address, expected `geonet.address` = \"anonymous\"");
    }
    if draft.facilities.as_ref().is_some_and(|facilities| facilities.has_station_id) {
        sink.push(at, "each pseudonym needs a new number, expected no `facilities.station_id`");
    }
}

/// Checks that a station with IPsec has one home agent, uses IPv6, and has a data path that passes packets to
/// the kernel.
fn check_ipsec(draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let agent = draft.home_agent.as_ref();
    let is_ipsec = |auth: &&Located<Auth>| auth.value == Auth::Ipsec;
    let nodes = agent.map(|agent| agent.allowed_routers.as_slice()).unwrap_or_default().iter();
    let of_nodes: Vec<&Located<Auth>> =
        nodes.filter_map(|router| router.auth.as_ref()).filter(is_ipsec).collect();
    let router = draft.mobile_router.as_ref();
    let own = router.and_then(|router| router.auth.as_ref()).filter(is_ipsec);
    let Some(first) = own.or(of_nodes.first().copied()) else { return };
    if draft.dataplane.as_ref().is_some_and(|dataplane| dataplane.path == DataplanePath::Kernel) {
        let message = "with the kernel's tunnel devices packets bypass IPsec, expected another \
                       `dataplane.path` than \"kernel\"";
        sink.push(first.offset, message);
    }
    if let (Some(auth), Some(router)) = (own, router) {
        if router.has_several_home_agents() {
            sink.push(
                auth.offset,
                "IPsec supports only one home agent, expected only its address in \
                                `home_agent`",
            );
        }
        if !router.home_agents_ipv4().is_empty() {
            let message = "IPsec does not protect messages inside IPv4, expected no `home_agent_ipv4`";
            sink.push(auth.offset, message);
        }
    }
    if let Some(auth) = of_nodes.first()
        && agent.is_some_and(|agent| !agent.peer_agents.is_empty())
    {
        sink.push(auth.offset, "IPsec supports only one home agent, expected no [[home_agent.peer]]");
    }
}

/// Checks that a station whose peers have public keys has a private key itself, and that no two mobile
/// routers have the same public key. Reports config keys that would let packets leave in the clear.
fn check_sessions(draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let routers = draft.home_agent.as_ref().map(|agent| agent.allowed_routers.as_slice()).unwrap_or_default();
    let nodes = routers.iter().filter_map(|router| router.auth.as_ref());
    let own = draft.mobile_router.as_ref().and_then(|router| router.auth.as_ref());
    let all: Vec<&Located<Auth>> =
        nodes.clone().chain(own).filter(|auth| auth.value.session_keys().is_some()).collect();
    let Some(first) = all.first() else { return };
    if draft.station.as_ref().is_some_and(|station| station.private_key.is_none()) {
        let message = "encrypted sessions need a private key of this station, expected \
                       `station.private_key_file`";
        sink.push(first.offset, message);
    }
    let mut known: HashMap<PublicKey, usize> = HashMap::new();
    for auth in nodes {
        for key in auth.value.session_keys().iter().flat_map(|keys| &keys.public_keys) {
            if let Some(other) = known.insert(*key, auth.offset) {
                let place = sink.format_position(other);
                sink.push(auth.offset, format!("the public key is that at {place}, expected another"));
            }
        }
    }
    let Some(router) = draft.mobile_router.as_ref() else { return };
    let (Some(auth), Some(config)) = (&router.auth, &router.config) else { return };
    let Some(keys) = auth.value.session_keys() else { return };
    let (keys, agents) = (keys.public_keys.len(), config.home_agents.addresses.len());
    if keys != 1 && keys != agents {
        let message =
            format!("there are {keys} keys for {agents} home agents, expected one, or one for each");
        sink.push(auth.offset, message);
    }
    if config.home_agents.discovers_home_agents {
        sink.push(auth.offset, "a discovered home agent has no key, expected no \"discover\"");
    }
    let neighbours = draft.geonet.as_ref().and_then(|geonet| geonet.mnpp_offset);
    if let Some(at) = neighbours.filter(|_| config.requires_direct_encryption) {
        let message = "packets to neighbouring vehicles are in the clear, expected no [geonet.mnpp], or \
                       `mobile_router.direct_encryption = \"off\"`";
        sink.push(at, message);
    }
}

/// Checks that a station that is both home agent and mobile router has separate addresses for the two roles.
fn check_both_roles(
    agent: &home_agent::UncheckedHomeAgent,
    router: &mobile_router::UncheckedMobileRouter,
    sink: &ErrorSink<'_>,
) {
    if let Some(address) = agent.address {
        let own = router.home_address.map(|own| (own, "home address"));
        let agents = router.home_agents().iter().map(|agent| (*agent, "home agent"));
        for (other, what) in own.into_iter().chain(agents) {
            if other.value == address.value {
                let message = format!(
                    "{} is this station's own home agent at {}, expected another {what}",
                    other.value,
                    sink.format_position(address.offset)
                );
                sink.push(other.offset, message);
            }
        }
    }
    if let Some(own) = router.home_address {
        let mut served = agent.allowed_routers.iter().filter_map(|other| other.home_address);
        if let Some(other) = served.find(|other| other.value == own.value) {
            let message = format!(
                "{} is this station's own home address at {}, expected another",
                other.value,
                sink.format_position(own.offset)
            );
            sink.push(other.offset, message);
        }
    }
}

/// Checks that neither the home agent nor the mobile router uses the interface of the radio.
fn check_radio_interface(geonet: &geonet::UncheckedGeonet, draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let Some(at) = &geonet.interface else { return };
    let Some(name) = at.value.name() else { return };
    let interface = Located { value: name.to_owned(), offset: at.offset };
    if let Some((other, what)) =
        interfaces_of_other_roles(draft).into_iter().find(|(other, _)| other.value == name)
    {
        refuse_taken_interface(&interface, what, other, sink);
    }
}

/// Returns the interfaces of all roles except GeoNetworking, each with its use in words.
fn interfaces_of_other_roles(draft: &UncheckedConfig) -> Vec<(&Located<String>, &'static str)> {
    let router = draft.mobile_router.as_ref();
    let uplinks = router.map(|router| router.uplinks.as_slice()).unwrap_or_default();
    let uplinks =
        uplinks.iter().filter_map(|uplink| uplink.interface.as_ref()).map(|other| (other, "an uplink"));
    let lan = router.map(|router| router.valid_lan_interfaces()).unwrap_or_default();
    let lan = lan.into_iter().map(|other| (other, "in the lan"));
    let home_link = draft.home_agent.as_ref().and_then(|agent| agent.home_link.as_ref());
    let home_link = home_link.into_iter().map(|other| (other, "the home link"));
    let proxy = draft.home_agent.as_ref().and_then(|agent| agent.ndp_proxy.as_ref());
    let proxy = proxy.into_iter().map(|other| (other, "the link of ndp_proxy"));
    uplinks.chain(lan).chain(home_link).chain(proxy).collect()
}

/// Checks the interfaces that carnet creates for IPv6 over GeoNetworking. No other interface may have their
/// names. Areas need the main interface, and each multicast group belongs to only one area.
fn check_ipv6_interfaces(geonet: &geonet::UncheckedGeonet, draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let areas = geonet.areas.as_slice();
    let main = geonet.ipv6_interface.as_ref();
    let dynamic = geonet.interface_for_other_areas.as_ref();
    let of_areas = areas.iter().filter_map(|area| area.ipv6_interface.as_ref());
    if let Some(None) = main {
        const EXPECTED_IPV6_INTERFACE: &str =
            "needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`";
        for at in geonet.ipv6_offset.into_iter().chain(of_areas.clone().map(|interface| interface.offset)) {
            sink.push(at, EXPECTED_IPV6_INTERFACE);
        }
    }
    let mut others = interfaces_of_other_roles(draft);
    let radio = geonet.interface.as_ref();
    let radio = radio.and_then(|at| Some(Located { value: at.value.name()?.to_owned(), offset: at.offset }));
    others.extend(radio.iter().map(|radio| (radio, "the radio")));
    let main = main.into_iter().flatten();
    let is_main = |interface: &Located<String>| main.clone().any(|main| main.offset == interface.offset);
    for interface in main.clone().chain(dynamic).chain(of_areas) {
        // The main interface of IPv6 over GeoNetworking may be an uplink, because a roadside unit may be an
        // access router of the vehicle.
        let allowed = |what: &str| what == "an uplink" && is_main(interface);
        match others.iter().find(|(other, what)| other.value == interface.value && !allowed(what)) {
            Some((other, what)) => refuse_taken_interface(interface, what, other, sink),
            None => others.push((interface, "an IPv6 interface")),
        }
    }
    check_multicast(geonet, &others, draft, sink);
    let mut groups: Vec<Located<Ipv6Addr>> = Vec::new();
    for group in areas.iter().filter_map(|area| area.group) {
        match groups.iter().find(|other| other.value == group.value) {
            Some(other) => {
                let place = sink.format_position(other.offset);
                sink.push(group.offset, format!("{} is an area's at {place}, expected another", group.value));
            }
            None => groups.push(group),
        }
    }
}

/// Checks that a station with direct routes to neighbouring mobile networks has a mobile network and IPv6.
fn check_mnpp_interface(geonet: &geonet::UncheckedGeonet, draft: &UncheckedConfig, sink: &ErrorSink<'_>) {
    let Some(at) = geonet.mnpp_offset else { return };
    if draft.mobile_router.as_ref().is_none_or(|router| !router.is_router) {
        sink.push(at, "the station has no mobile network to announce, expected a section [mobile_router]");
    }
    if let Some(None) = geonet.ipv6_interface {
        const EXPECTED_IPV6_INTERFACE: &str =
            "needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`";
        sink.push(at, EXPECTED_IPV6_INTERFACE);
    }
}

/// Checks the interfaces of `geonet.multicast`: none is an uplink or an interface that carnet creates, and
/// none is listed twice.
fn check_multicast(
    geonet: &geonet::UncheckedGeonet,
    others: &[(&Located<String>, &'static str)],
    draft: &UncheckedConfig,
    sink: &ErrorSink<'_>,
) {
    let Some(multicast) = &geonet.multicast else { return };
    if let Some(None) = geonet.ipv6_interface {
        const EXPECTED_IPV6_INTERFACE: &str =
            "needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`";
        sink.push(multicast.at, EXPECTED_IPV6_INTERFACE);
    }
    let lan = draft.mobile_router.as_ref().map(|router| router.valid_lan_interfaces()).unwrap_or_default();
    let mut taken_by: Vec<(&Located<String>, &'static str)> = others.to_vec();
    taken_by.retain(|(other, _)| !lan.iter().any(|lan| lan.offset == other.offset));
    for interface in &multicast.lan.valid_items {
        match taken_by.iter().find(|(other, _)| other.value == interface.value) {
            Some((other, what)) => refuse_taken_interface(interface, what, other, sink),
            None => taken_by.push((interface, "in the lan")),
        }
    }
}

/// Checks that no two areas have the same name.
fn check_area_names(geonet: &geonet::UncheckedGeonet, sink: &ErrorSink<'_>) {
    let mut names: Vec<&Located<String>> = Vec::new();
    for name in geonet.areas.iter().filter_map(|area| area.name.as_ref()) {
        match names.iter().find(|other| other.value == name.value) {
            Some(other) => refuse_taken_interface(name, "an area", other, sink),
            None => names.push(name),
        }
    }
}
