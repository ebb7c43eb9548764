//! Checks that every name in a scenario refers to an object.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use super::scenario_error::{ErrorAtPlace, join_quoted_names};
use super::{Duration, LinkEnd, Node, Scenario};
use super::{emulation, radio};

/// Name of the TUN device that carnet creates.
const TUNNEL_DEVICE: &str = "carnet0";

/// Checks that every name refers to an object.
pub(super) fn check_scenario(scenario: &Scenario, folder: Option<&Path>) -> Result<(), ErrorAtPlace> {
    let node = |name: &Spanned<String>| -> Result<&Node, ErrorAtPlace> {
        scenario.nodes.get(name.get_ref()).ok_or_else(|| {
            let known = join_quoted_names(scenario.nodes.keys().map(String::as_str).collect());
            (name.span(), format!("there is no node {:?}; the nodes are: {known}", name.get_ref()))
        })
    };
    let mut ends: Vec<LinkEnd> = Vec::new();
    for link in &scenario.links {
        let at = link.ends.first().map_or(0..0, Spanned::span);
        match (&link.bridge, link.ends.len()) {
            (None, n) if n != 2 => {
                return Err((at, format!("a link without a bridge joins 2 ends, here are {n}")));
            }
            (Some(b), _) if !(1..=11).contains(&b.len()) => {
                return Err((at, format!("bridge name {b:?} must have 1 to 11 characters")));
            }
            _ => {}
        }
        for end in &link.isolated {
            let known = link.ends.iter().any(|other| other.get_ref() == end.get_ref());
            if link.bridge.is_none() || !known {
                return Err((end.span(), format!("{} is no end of this bridge", end.get_ref())));
            }
        }
        for end in &link.ends {
            let name = Spanned::new(end.span(), end.get_ref().node.clone());
            node(&name)?;
            if ends.contains(end.get_ref()) {
                return Err((end.span(), format!("{} is on a link already", end.get_ref())));
            }
            ends.push(end.get_ref().clone());
        }
    }
    radio::check_radios(scenario, &mut ends)?;
    emulation::check_emulation(scenario)?;
    let interface = |span: Range<usize>, node: &str, interface: &str| -> Result<(), ErrorAtPlace> {
        if ends.iter().any(|e| e.node == node && e.interface == interface) {
            return Ok(());
        }
        let known = ends.iter().filter(|e| e.node == node).map(|e| e.interface.as_str()).collect();
        Err((
            span,
            format!("node {node:?} has no interface {interface:?}; it has: {}", join_quoted_names(known)),
        ))
    };
    for (name, n) in &scenario.nodes {
        for i in n.addresses.keys() {
            interface(i.span(), name, i.get_ref())?;
        }
        // Skip the TUN device: a mobile node's home address is on this device, which carnet creates.
        if let Some(a) = &n.autoconf
            && (n.carnet.is_none() || a.interface.get_ref() != TUNNEL_DEVICE)
        {
            interface(a.interface.span(), name, a.interface.get_ref())?;
        }
        if let Some(i) = &n.dhcp {
            interface(i.span(), name, i.get_ref())?;
        }
        if let Some(pki) = &n.pki
            && (n.carnet.is_none() || !pki.get_ref().chars().all(|c| c.is_ascii_lowercase()))
        {
            let message = "a PKI is for a node with carnet, and its name has small letters only";
            return Err((pki.span(), message.into()));
        }
        if n.revoked && n.pki.is_none() {
            return Err((0..0, format!("node {name:?} has no ticket that could be revoked: it has no pki")));
        }
        for peer in n.station_routes.iter().flat_map(|route| route.split("{ll:").skip(1)) {
            let peer = peer.split('}').next().unwrap_or_default();
            if scenario.nodes.get(peer).is_none_or(|peer| peer.carnet.is_none()) {
                let at = n.carnet.as_ref().map_or(0..0, Spanned::span);
                return Err((
                    at,
                    format!("station_routes of node {name:?}: no carnet runs in node {peer:?}"),
                ));
            }
        }
        for config in [&n.carnet, &n.radvd].into_iter().flatten() {
            if let Some(folder) = folder
                && !folder.join(config.get_ref()).is_file()
            {
                return Err((config.span(), format!("there is no file {:?} beside it", config.get_ref())));
            }
        }
    }
    let mut flows: Vec<(&str, &Spanned<String>)> = Vec::new();
    let t = &scenario.traffic;
    flows.extend(t.ping.iter().map(|p| (p.name.as_str(), &p.to)));
    for ping in &t.ping {
        node(&ping.from)?;
    }
    flows.extend(t.tcp.iter().flat_map(|p| [(p.name.as_str(), &p.client), (p.name.as_str(), &p.server)]));
    flows.extend(
        t.probe.iter().flat_map(|p| [(p.name.as_str(), &p.between.0), (p.name.as_str(), &p.between.1)]),
    );
    if let Some(probe) = t.probe.iter().find(|probe| *probe.size.get_ref() < 24) {
        return Err((
            probe.size.span(),
            format!("a probe has 24 octets at least, {:?} has fewer", probe.name),
        ));
    }
    if let Some(tcp) = t.tcp.iter().find(|tcp| {
        let begin = tcp.begin.unwrap_or(Duration(0));
        tcp.end.unwrap_or(scenario.timetable.duration) <= begin
    }) {
        return Err((tcp.client.span(), format!("the transfer {:?} ends before it begins", tcp.name)));
    }
    for (flow, end) in flows {
        let n = node(end)?;
        if n.autoconf.is_none() && n.dhcp.is_none() && n.addresses.is_empty() {
            let name = end.get_ref();
            return Err((
                end.span(),
                format!("traffic {flow:?} ends at node {name:?}, which has no addresses, autoconf or dhcp"),
            ));
        }
    }
    let mut last = Duration(0);
    for a in &scenario.actions {
        let what = [
            a.nothing,
            a.link_down.is_some(),
            a.link_up.is_some(),
            a.carrier_off.is_some(),
            a.carrier_on.is_some(),
            a.degrade.is_some(),
            a.blackhole.is_some(),
            a.restore.is_some(),
            a.nat_forget.is_some(),
            a.handover.is_some(),
            a.order.is_some(),
            a.run.is_some(),
        ];
        if what.iter().filter(|x| **x).count() != 1 {
            let message = "an action has exactly one of nothing, link_down, link_up, carrier_off, \
                           carrier_on, degrade, blackhole, restore, nat_forget, handover, order, run";
            return Err((a.name.span(), message.into()));
        }
        if a.at < last || a.at > scenario.timetable.duration {
            let message = "actions stand in order of time, within the duration of the timetable";
            return Err((a.name.span(), message.into()));
        }
        last = a.at;
        if scenario.actions.iter().filter(|b| b.name.get_ref() == a.name.get_ref()).count() > 1 {
            return Err((a.name.span(), format!("there are two actions {:?}", a.name.get_ref())));
        }
        for end in [&a.link_down, &a.link_up, &a.carrier_off, &a.carrier_on].into_iter().flatten() {
            node(&Spanned::new(end.span(), end.get_ref().node.clone()))?;
            interface(end.span(), &end.get_ref().node, &end.get_ref().interface)?;
        }
        for station in a.handover.iter().map(|h| &h.station).chain(a.order.iter().map(|o| &o.station)) {
            if node(station)?.carnet.is_none() {
                return Err((station.span(), format!("no carnet runs in node {:?}", station.get_ref())));
            }
        }
        for name in [a.run.as_ref().map(|r| &r.node), a.nat_forget.as_ref()].into_iter().flatten() {
            node(name)?;
        }
    }
    let action = |name: &Spanned<String>| -> Result<(), ErrorAtPlace> {
        if scenario.actions.iter().any(|a| a.name.get_ref() == name.get_ref()) {
            return Ok(());
        }
        let known = join_quoted_names(scenario.actions.iter().map(|a| a.name.get_ref().as_str()).collect());
        Err((name.span(), format!("there is no action {:?}; the actions are: {known}", name.get_ref())))
    };
    for d in &scenario.derived {
        if [&d.plus, &d.minus, &d.over].into_iter().flatten().count() != 1 {
            let message = format!("the derived metric {:?} has exactly one of plus, minus, over", d.name);
            return Err((0..0, message));
        }
    }
    for name in scenario.expect.iter().filter_map(|e| e.after.as_ref()) {
        action(name)?;
    }
    for name in scenario.headline.iter().filter_map(|h| h.after.as_ref()) {
        action(name)?;
    }
    if let Some(e) = scenario
        .expect
        .iter()
        .find(|e| e.equals.is_none() && e.below.is_none() && e.at_most.is_none() && e.at_least.is_none())
    {
        let at = e.after.as_ref().map_or(0..0, Spanned::span);
        let message = format!("expectation {:?} has none of equals, below, at_most, at_least", e.what);
        return Err((at, message));
    }
    Ok(())
}
