//! The checks between values of a config file. What a single value has to be is in
//! [`values`](super::values).

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::draft::{
    Draft, FacilitiesDraft, GeonetDraft, HomeAgentDraft, List, MobileRouterDraft, SecurityDraft,
};
use super::errors::Sink;
use super::reader::At;
use super::{Auth, DataplanePath};

/// Flow bindings that one mobile router may have.
const MAX_FLOWS: usize = 32;

/// Notes everything in a draft that does not go together.
pub(super) fn check(draft: &Draft, sink: &Sink<'_>) {
    if !draft.has_role {
        sink.push(
            0,
            "the station has no job, expected [home_agent], [mobile_router], [mobile_node] or [geonet]",
        );
    }
    if let Some(agent) = &draft.home_agent {
        home_agent(agent, sink);
    }
    if let Some(router) = &draft.mobile_router {
        mobile_router(router, sink);
        direct_routes(router, draft.home_agent.is_some(), sink);
    }
    ipsec(draft, sink);
    if let (Some(agent), Some(router)) = (&draft.home_agent, &draft.mobile_router) {
        both(agent, router, sink);
    }
    if let Some(conformance) = draft.conformance.as_ref().filter(|_| draft.geonet.is_none()) {
        sink.push(conformance.at, "the upper tester steers GeoNetworking, expected [geonet] beside it");
    }
    if let Some(facilities) = draft.facilities.as_ref().filter(|_| draft.geonet.is_none()) {
        sink.push(facilities.at, "the facilities stand on GeoNetworking, expected [geonet] beside it");
    }
    if let Some(security) = &draft.security {
        if draft.geonet.is_none() {
            sink.push(security.at, "what is signed are GeoNetworking packets, expected [geonet] beside it");
        }
        if security.trusts_nobody() {
            sink.push(
                security.at,
                "nobody would be believed, expected `security.roots` with a root at least",
            );
        }
        pseudonyms(security, draft, sink);
    }
    if let Some(geonet) = &draft.geonet {
        radio(geonet, draft, sink);
        areas(geonet, sink);
        ipv6(geonet, draft, sink);
        mnpp(geonet, draft, sink);
    }
}

/// What a station has that changes its pseudonym, and what would give it away.
fn pseudonyms(security: &SecurityDraft, draft: &Draft, sink: &Sink<'_>) {
    let Some(at) = security.pseudonyms_at else { return };
    if security.has_no_tickets() {
        sink.push(at, "a pseudonym is a ticket, expected `security.tickets`");
    }
    if draft.geonet.as_ref().is_some_and(|geonet| !geonet.is_anonymous()) {
        sink.push(at, "a pseudonym has an address of its own, expected `geonet.address` = \"anonymous\"");
    }
    if draft.facilities.as_ref().is_some_and(FacilitiesDraft::has_a_number) {
        sink.push(at, "a pseudonym has a number of its own, expected no `facilities.station_id`");
    }
}

fn home_agent(agent: &HomeAgentDraft, sink: &Sink<'_>) {
    if let (Some(Some(network)), Some(home)) = (agent.home_network, agent.home_prefix)
        && !network.value.contains(&home.value)
    {
        let place = sink.place(home.at);
        let message = format!(
            "{} does not contain the home prefix {} at {place}, expected one that does",
            network.value, home.value
        );
        sink.push(network.at, message);
    }
    let routers = agent.routers.as_deref().unwrap_or_default();
    let mut prefixes: Vec<At<Ipv6Net>> = Vec::new();
    let mut home_addresses: HashMap<Ipv6Addr, At<Ipv6Addr>> = HashMap::new();
    for router in routers {
        home_address(router.home_address, agent.home_prefix, &router.prefixes, sink);
        if let Some(own) = router.home_address {
            let first = *home_addresses.entry(own.value).or_insert(own);
            if first.at != own.at {
                let place = sink.place(first.at);
                sink.push(own.at, format!("{} is the home address at {place}, expected another", own.value));
            }
            if let Some(address) = agent.address.filter(|address| address.value == own.value) {
                let place = sink.place(address.at);
                sink.push(own.at, format!("{} is the home agent at {place}, expected another", own.value));
            }
        }
        not_inside(agent.address, &router.prefixes, sink);
        prefixes.extend(&router.prefixes.items);
    }
    apart(&prefixes, sink);
    peers(agent, sink);
    // RFC 2526: the anycast address is of a /64.
    if let Some(prefix) = agent.home_prefix.filter(|prefix| prefix.value.prefix_len() > 64)
        && agent.dhaad == Some(true)
    {
        let message = "has no anycast address for home agents, expected /64 or shorter with `dhaad`";
        sink.push(prefix.at, format!("{} {message}", prefix.value));
    }
}

/// Other home agents, with the same mobile routers.
fn peers(agent: &HomeAgentDraft, sink: &Sink<'_>) {
    let peers: Vec<At<Ipv6Addr>> = agent.peers.iter().flatten().filter_map(|peer| peer.address).collect();
    let routers = agent.routers.as_deref().unwrap_or_default();
    for (index, peer) in peers.iter().enumerate() {
        let taken = |other: &At<Ipv6Addr>, what: &str| {
            let place = sink.place(other.at);
            sink.push(peer.at, format!("{} is {what} at {place}, expected another", peer.value));
        };
        if let Some(own) = agent.address.filter(|own| own.value == peer.value) {
            taken(&own, "this home agent");
        }
        if let Some(other) = peers.iter().take(index).find(|other| other.value == peer.value) {
            taken(other, "a peer already");
        }
        for router in routers {
            if let Some(home) = router.home_address.filter(|home| home.value == peer.value) {
                taken(&home, "the home address");
            }
            not_inside(Some(*peer), &router.prefixes, sink);
        }
    }
    for auth in routers.iter().filter_map(|router| router.auth.as_ref()).filter(|_| !peers.is_empty()) {
        if auth.value.mac().is_some_and(|mac| mac.per_agent.is_none()) {
            let message = "whether other home agents have the same key has to be said where there is a \
                           [[home_agent.peer]], expected per_agent = true, or per_agent = false for a key that none has";
            sink.push(auth.at, message);
        }
    }
}

/// RFC 4285's authenticator does not cover the home agent's address: with one key for several, what was
/// recorded on the way to one is good at another.
fn one_key(router: &MobileRouterDraft, sink: &Sink<'_>) {
    let agents = &router.home_agents;
    let Some(auth) = router.auth.as_ref().filter(|_| agents.discover || agents.items().len() > 1) else {
        return;
    };
    if auth.value.mac().is_some_and(|mac| mac.per_agent != Some(true)) {
        let message = "one key for several home agents lets Binding Updates to one be played again at another, \
                       expected per_agent = true";
        sink.push(auth.at, message);
    }
}

/// What IPsec can be used with.
fn ipsec(draft: &Draft, sink: &Sink<'_>) {
    let agent = draft.home_agent.as_ref();
    let is_ipsec = |auth: &&At<Auth>| auth.value == Auth::Ipsec;
    let nodes = agent.and_then(|agent| agent.routers.as_deref()).unwrap_or_default().iter();
    let of_nodes: Vec<&At<Auth>> = nodes.filter_map(|router| router.auth.as_ref()).filter(is_ipsec).collect();
    let router = draft.mobile_router.as_ref();
    let own = router.and_then(|router| router.auth.as_ref()).filter(is_ipsec);
    let Some(first) = own.or(of_nodes.first().copied()) else { return };
    if draft.dataplane.as_ref().is_some_and(|dataplane| dataplane.path == DataplanePath::Kernel) {
        let message = "the kernel's own tunnel devices take the packets that IPsec is to see, expected another \
                       `dataplane.path` than \"kernel\"";
        sink.push(first.at, message);
    }
    if let (Some(auth), Some(router)) = (own, router) {
        let agents = &router.home_agents;
        if agents.discover || agents.items().len() > 1 {
            sink.push(auth.at, "IPsec is with one home agent, expected its address alone in `home_agent`");
        }
        if agents.ipv4_addresses.as_ref().is_some_and(|list| !list.items.is_empty()) {
            let message = "messages inside IPv4 are not under IPsec, expected no `home_agent_ipv4`";
            sink.push(auth.at, message);
        }
    }
    if let Some(auth) = of_nodes.first()
        && agent.is_some_and(|agent| agent.peers.iter().flatten().next().is_some())
    {
        sink.push(auth.at, "IPsec is with one home agent, expected no [[home_agent.peer]]");
    }
}

/// Prefixes that a direct route may have.
const MAX_DIRECT: usize = 8;

/// What direct routes can be used with.
fn direct_routes(router: &MobileRouterDraft, is_home_agent: bool, sink: &Sink<'_>) {
    let Some(first) = router.direct_routes.items.first() else { return };
    if is_home_agent {
        let message =
            "a home agent has tunnels to mobile networks already, expected no [home_agent] beside it";
        sink.push(first.at, message);
    }
    let mut lengths = router.prefixes.items.iter().map(|prefix| prefix.value.prefix_len());
    if let Some(prefix) = router.prefixes.items.first()
        && (router.prefixes.items.len() > MAX_DIRECT || lengths.any(|length| length != 64))
    {
        let message =
            "nothing that can be proven for `direct_routes`, expected at most 8 prefixes, each a /64";
        sink.push(prefix.at, message);
    }
}

/// No home agent twice, and IPv4 addresses of all or of none.
fn home_agents(router: &MobileRouterDraft, sink: &Sink<'_>) {
    let agents = router.home_agents.items();
    for (index, agent) in agents.iter().enumerate() {
        if let Some(own) = router.home_address.filter(|own| own.value == agent.value) {
            let place = sink.place(own.at);
            sink.push(agent.at, format!("{} is the home address at {place}, expected another", own.value));
        }
        if let Some(other) = agents.iter().take(index).find(|other| other.value == agent.value) {
            let place = sink.place(other.at);
            sink.push(agent.at, format!("{} is there at {place} already, expected another", agent.value));
        }
        not_inside(Some(*agent), &router.prefixes, sink);
    }
    let Some(ipv4) = router.home_agents.ipv4_addresses.as_ref().filter(|list| list.whole) else { return };
    let whole = router.home_agents.addresses.as_ref().is_some_and(|list| list.whole);
    if let Some(first) = ipv4.items.first().filter(|_| whole && ipv4.items.len() != agents.len()) {
        let message = format!(
            "there are {} IPv4 addresses for {} home agents, expected one for each in `home_agent`",
            ipv4.items.len(),
            agents.len()
        );
        sink.push(first.at, message);
    }
}

fn mobile_router(router: &MobileRouterDraft, sink: &Sink<'_>) {
    home_address(router.home_address, router.home_prefix, &router.prefixes, sink);
    home_agents(router, sink);
    one_key(router, sink);
    apart(&router.prefixes.items, sink);

    if let Some(interface) = router.lan.items.first() {
        if router.prefixes.items.is_empty() && router.prefixes.whole {
            let message = "the mobile network has no prefix, expected `mobile_router.prefixes`";
            sink.push(interface.at, message);
        }
        // RFC 4862 5.5.3: hosts make addresses from a /64 only; one is cut from a shorter prefix.
        for prefix in router.prefixes.items.iter().filter(|prefix| prefix.value.prefix_len() > 64) {
            if router.advertise == Some(true) {
                let message = "is too long to be advertised on the lan, expected /64 or shorter, \
                               or advertise = false";
                sink.push(prefix.at, format!("{} {message}", prefix.value));
            }
        }
    }

    policies(router, sink);
    let mut uplinks: Vec<&At<String>> = Vec::new();
    for interface in router.uplinks.iter().flatten().filter_map(|uplink| uplink.interface.as_ref()) {
        match uplinks.iter().find(|other| other.value == interface.value) {
            Some(other) => taken(interface, "an uplink", other, sink),
            None => uplinks.push(interface),
        }
    }
    let mut identifiers: Vec<&At<u16>> = Vec::new();
    for bid in router.uplinks.iter().flatten().filter_map(|uplink| uplink.bid.as_ref()?.as_ref()) {
        match identifiers.iter().find(|other| other.value == bid.value) {
            Some(other) => {
                let place = sink.place(other.at);
                sink.push(bid.at, format!("{} is the identifier at {place}, expected another", bid.value));
            }
            None => identifiers.push(bid),
        }
    }
    for (index, interface) in router.lan.items.iter().enumerate() {
        if let Some(other) = router.lan.items[..index].iter().find(|other| other.value == interface.value) {
            taken(interface, "in the lan", other, sink);
        }
        if let Some(uplink) = uplinks.iter().find(|uplink| uplink.value == interface.value) {
            taken(interface, "an uplink", uplink, sink);
        }
    }
}

/// Policies choose among uplinks that have one.
fn policies(router: &MobileRouterDraft, sink: &Sink<'_>) {
    let uplinks = router.uplinks.as_deref().unwrap_or_default();
    let mut names: Vec<&At<String>> = Vec::new();
    let mut flows = 0;
    for policy in router.policies.iter().flatten() {
        if let Some(name) = &policy.name {
            match names.iter().find(|other| other.value == name.value) {
                Some(other) => {
                    let place = sink.place(other.at);
                    sink.push(
                        name.at,
                        format!("{:?} is the policy at {place}, expected another name", name.value),
                    );
                }
                None => names.push(name),
            }
        }
        if policy.uplinks.items.is_empty() && policy.uplinks.whole {
            sink.push(policy.at, "the policy has no uplink, expected at least one in `uplinks`".to_owned());
        }
        for interface in &policy.uplinks.items {
            let uplink = uplinks
                .iter()
                .find(|uplink| uplink.interface.as_ref().is_some_and(|name| name.value == interface.value));
            if uplink.is_none_or(|uplink| matches!(uplink.bid, Some(None))) {
                let message = format!("{:?} is no uplink with a `bid`, expected one", interface.value);
                sink.push(interface.at, message);
            }
        }
        let count = |length: usize| length.max(1);
        let ports = policy.ports.as_ref().map_or(0, Vec::len);
        let dscp = policy.dscp.as_ref().map_or(0, Vec::len);
        // A port is looked for at either end.
        let own =
            count(dscp).saturating_mul(count(policy.prefixes.items.len())).saturating_mul(count(ports * 2));
        flows += own;
        if flows > MAX_FLOWS && flows - own <= MAX_FLOWS {
            let message = format!(
                "the policies make more than {MAX_FLOWS} flow bindings, expected fewer code points, prefixes or ports"
            );
            sink.push(policy.at, message);
        }
    }
}

/// A station may do both jobs, with addresses of its own for each.
fn both(agent: &HomeAgentDraft, router: &MobileRouterDraft, sink: &Sink<'_>) {
    if let Some(address) = agent.address {
        let own = router.home_address.map(|own| (own, "home address"));
        let agents = router.home_agents.items().iter().map(|agent| (*agent, "home agent"));
        for (other, what) in own.into_iter().chain(agents) {
            if other.value == address.value {
                let message = format!(
                    "{} is this station's own home agent at {}, expected another {what}",
                    other.value,
                    sink.place(address.at)
                );
                sink.push(other.at, message);
            }
        }
    }
    if let Some(own) = router.home_address {
        let mut served = agent.routers.iter().flatten().filter_map(|other| other.home_address);
        if let Some(other) = served.find(|other| other.value == own.value) {
            let message = format!(
                "{} is this station's own home address at {}, expected another",
                other.value,
                sink.place(own.at)
            );
            sink.push(other.at, message);
        }
    }
}

/// The radio is for GeoNetworking alone.
fn radio(geonet: &GeonetDraft, draft: &Draft, sink: &Sink<'_>) {
    let Some(at) = &geonet.interface else { return };
    let Some(name) = at.value.name() else { return };
    let interface = At { value: name.to_owned(), at: at.at };
    if let Some((other, what)) = interfaces(draft).into_iter().find(|(other, _)| other.value == name) {
        taken(&interface, what, other, sink);
    }
}

/// The interfaces of the other roles, and what they are to them.
fn interfaces(draft: &Draft) -> Vec<(&At<String>, &'static str)> {
    let router = draft.mobile_router.as_ref();
    let uplinks = router.and_then(|router| router.uplinks.as_deref()).unwrap_or_default();
    let uplinks =
        uplinks.iter().filter_map(|uplink| uplink.interface.as_ref()).map(|other| (other, "an uplink"));
    let lan = router.map(|router| router.lan.items.as_slice()).unwrap_or_default();
    let lan = lan.iter().map(|other| (other, "in the lan"));
    let home_link = draft.home_agent.as_ref().and_then(|agent| agent.home_link.as_ref()?.as_ref());
    let home_link = home_link.into_iter().map(|other| (other, "the home link"));
    uplinks.chain(lan).chain(home_link).collect()
}

/// carnet makes the interfaces of IPv6 over GeoNetworking: nobody else has one of that name. One of them is
/// always there, and each group leads to one area.
fn ipv6(geonet: &GeonetDraft, draft: &Draft, sink: &Sink<'_>) {
    let areas = geonet.areas.as_deref().unwrap_or_default();
    let main = geonet.ipv6_interface.as_ref();
    let dynamic = geonet.ipv6.as_ref().and_then(|ipv6| ipv6.dynamic_interface.as_ref());
    let of_areas = areas.iter().filter_map(|area| area.ipv6_interface.as_ref()?.as_ref());
    if let Some(None) = main {
        const EXPECTED: &str =
            "goes with IPv6 over GeoNetworking, expected `geonet.ipv6_interface` beside it";
        let table = geonet.ipv6.as_ref().and_then(|ipv6| ipv6.at);
        for at in table.into_iter().chain(of_areas.clone().map(|interface| interface.at)) {
            sink.push(at, EXPECTED);
        }
    }
    let mut others = interfaces(draft);
    let radio = geonet.interface.as_ref();
    let radio = radio.and_then(|at| Some(At { value: at.value.name()?.to_owned(), at: at.at }));
    others.extend(radio.iter().map(|radio| (radio, "the radio")));
    let main = main.into_iter().flatten();
    let is_main = |interface: &At<String>| main.clone().any(|main| main.at == interface.at);
    for interface in main.clone().chain(dynamic).chain(of_areas) {
        // Roadside units may be access routers: the interface to everybody may be an uplink.
        let allowed = |what: &str| what == "an uplink" && is_main(interface);
        match others.iter().find(|(other, what)| other.value == interface.value && !allowed(what)) {
            Some((other, what)) => taken(interface, what, other, sink),
            None => others.push((interface, "an IPv6 interface")),
        }
    }
    multicast(geonet, &others, draft, sink);
    let mut groups: Vec<At<Ipv6Addr>> = Vec::new();
    for group in areas.iter().filter_map(|area| area.group?) {
        match groups.iter().find(|other| other.value == group.value) {
            Some(other) => {
                let place = sink.place(other.at);
                sink.push(group.at, format!("{} is an area's at {place}, expected another", group.value));
            }
            None => groups.push(group),
        }
    }
}

/// Ways to other mobile networks are for a mobile network, and lead over IPv6.
fn mnpp(geonet: &GeonetDraft, draft: &Draft, sink: &Sink<'_>) {
    let Some(Some(mnpp)) = &geonet.mnpp else { return };
    if draft.mobile_router.as_ref().is_none_or(|router| !router.is_router) {
        sink.push(mnpp.at, "there is no mobile network to announce, expected [mobile_router] beside it");
    }
    if let Some(None) = geonet.ipv6_interface {
        const EXPECTED: &str =
            "goes with IPv6 over GeoNetworking, expected `geonet.ipv6_interface` beside it";
        sink.push(mnpp.at, EXPECTED);
    }
}

/// The mobile network is none of what carnet makes, nor an uplink; each of its interfaces is named once.
fn multicast(geonet: &GeonetDraft, others: &[(&At<String>, &'static str)], draft: &Draft, sink: &Sink<'_>) {
    let Some(Some(multicast)) = &geonet.multicast else { return };
    if let Some(None) = geonet.ipv6_interface {
        const EXPECTED: &str =
            "goes with IPv6 over GeoNetworking, expected `geonet.ipv6_interface` beside it";
        sink.push(multicast.at, EXPECTED);
    }
    let lan = draft.mobile_router.as_ref().map(|router| router.lan.items.as_slice()).unwrap_or_default();
    let mut taken_by: Vec<(&At<String>, &'static str)> = others.to_vec();
    taken_by.retain(|(other, _)| !lan.iter().any(|lan| lan.at == other.at));
    for interface in &multicast.lan.items {
        match taken_by.iter().find(|(other, _)| other.value == interface.value) {
            Some((other, what)) => taken(interface, what, other, sink),
            None => taken_by.push((interface, "in the lan")),
        }
    }
}

/// No two areas have the same name.
fn areas(geonet: &GeonetDraft, sink: &Sink<'_>) {
    let mut names: Vec<&At<String>> = Vec::new();
    for name in geonet.areas.iter().flatten().filter_map(|area| area.name.as_ref()) {
        match names.iter().find(|other| other.value == name.value) {
            Some(other) => taken(name, "an area", other, sink),
            None => names.push(name),
        }
    }
}

/// RFC 3963 3: a home address is from the home prefix or from a mobile network prefix.
fn home_address(
    address: Option<At<Ipv6Addr>>,
    home_prefix: Option<At<Ipv6Net>>,
    prefixes: &List<Ipv6Net>,
    sink: &Sink<'_>,
) {
    let (Some(address), Some(home_prefix)) = (address, home_prefix) else { return };
    let inside = |prefix: &At<Ipv6Net>| prefix.value.contains(&address.value);
    if prefixes.whole && !inside(&home_prefix) && !prefixes.items.iter().any(inside) {
        let message = format!(
            "home address {} is outside, expected an address in {} or in one of the prefixes",
            address.value, home_prefix.value
        );
        sink.push(address.at, message);
    }
}

/// What is sent to the home agent would go into the tunnel to it.
fn not_inside(agent: Option<At<Ipv6Addr>>, prefixes: &List<Ipv6Net>, sink: &Sink<'_>) {
    let Some(agent) = agent else { return };
    for prefix in prefixes.items.iter().filter(|prefix| prefix.value.contains(&agent.value)) {
        let message = format!(
            "{} contains the home agent {} at {}, expected a prefix without it",
            prefix.value,
            agent.value,
            sink.place(agent.at)
        );
        sink.push(prefix.at, message);
    }
}

/// No prefix may be part of another. There may be a great many.
fn apart(prefixes: &[At<Ipv6Net>], sink: &Sink<'_>) {
    // By first address and length, the first prefix of that kind.
    let mut before: BTreeMap<(u128, u8), usize> = BTreeMap::new();
    for (index, prefix) in prefixes.iter().enumerate() {
        let (first, last) = (prefix.value.network(), prefix.value.broadcast());
        let length = prefix.value.prefix_len();
        let around = (0..length).filter_map(|shorter| {
            let network = Ipv6Net::new(first, shorter).ok()?.network();
            before.get(&(u128::from(network), shorter))
        });
        let within = before.range((u128::from(first), length)..=(u128::from(last), u8::MAX));
        let other = around.chain(within.map(|(_, other)| other)).min();
        if let Some(other) = other.and_then(|other| prefixes.get(*other)) {
            let message = format!(
                "{} overlaps {} at {}, expected prefixes that do not overlap",
                prefix.value,
                other.value,
                sink.place(other.at)
            );
            sink.push(prefix.at, message);
        }
        before.entry((u128::from(first), length)).or_insert(index);
    }
}

fn taken(interface: &At<String>, what: &str, other: &At<String>, sink: &Sink<'_>) {
    let place = sink.place(other.at);
    sink.push(interface.at, format!("{:?} is {what} already at {place}, expected another", interface.value));
}
