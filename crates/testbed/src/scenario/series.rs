//! Expands series of nodes: many nodes of one kind, with the links and probes of each node.
//!
//! `[nodes."mr{n}"]` with a `count` describes that many nodes; `{n}` is the number of each. A link with an
//! end `mr{n}` stands for one link per number; with a bridge, it is one link with all these ends. A probe
//! with such an end stands for one probe per number, and the sum of these probes has the name with `{n}`.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::scenario_error::{ErrorAtPlace, join_quoted_names};
use super::{Link, LinkEnd, Node, Probe, Scenario};

/// Maximum number of nodes of a series.
const MAX_SERIES_SIZE: u32 = 1000;

/// Placeholder for a node's number.
const NUMBER_PLACEHOLDER: &str = "{n}";

fn replace_number_placeholder(text: &str, number: u32) -> String {
    text.replace(NUMBER_PLACEHOLDER, &number.to_string())
}

/// Expands each series to nodes, links and probes. `size` replaces every `count`.
pub(super) fn expand_node_series(
    scenario: &mut Scenario,
    text: &str,
    size: Option<u32>,
) -> Result<(), ErrorAtPlace> {
    if let Some((name, node)) =
        scenario.nodes.iter().find(|(name, n)| n.count.is_some() != name.contains(NUMBER_PLACEHOLDER))
    {
        let span = node.count.as_ref().map(Spanned::span).or_else(|| text.find(name).map(|at| at..at));
        let message = "a series of nodes has {n} in its name, and a count";
        return Err((span.unwrap_or(0..0), format!("node {name:?}: {message}")));
    }
    let folded: Vec<String> =
        scenario.nodes.keys().filter(|name| name.contains(NUMBER_PLACEHOLDER)).cloned().collect();
    let mut series = NumbersBySeries::new();
    for name in folded {
        let Some(node) = scenario.nodes.remove(&name) else { continue };
        let Some(count) = &node.count else { continue };
        let size = size.unwrap_or(*count.get_ref());
        if !(1..=MAX_SERIES_SIZE).contains(&size) {
            return Err((count.span(), format!("count is {size}, expected 1 to {MAX_SERIES_SIZE}")));
        }
        let numbers: Vec<u32> = (node.first..node.first + size).collect();
        for &number in &numbers {
            let taken = scenario
                .nodes
                .insert(replace_number_placeholder(&name, number), node_of_series(&node, number))
                .is_some();
            if taken {
                return Err((
                    count.span(),
                    format!("there is a node {:?} already", replace_number_placeholder(&name, number)),
                ));
            }
        }
        series.insert(name, numbers);
    }
    let mut links = Vec::new();
    for link in std::mem::take(&mut scenario.links) {
        links.extend(expand_link(link, &series)?);
    }
    scenario.links = links;
    let mut probes = Vec::new();
    for probe in std::mem::take(&mut scenario.traffic.probe) {
        probes.extend(expand_probe(probe, &series)?);
    }
    scenario.traffic.probe = probes;
    Ok(())
}

/// Numbers of the nodes of each series, by the name with `{n}`.
type NumbersBySeries = BTreeMap<String, Vec<u32>>;

/// Returns the node with this number of a series.
fn node_of_series(series: &Node, number: u32) -> Node {
    let index = number - series.first;
    let mut node = series.clone();
    node.count = None;
    node.series = Some(number);
    node.role = replace_number_placeholder(&series.role, number);
    for addresses in node.addresses.values_mut() {
        *addresses = addresses.iter().map(|a| replace_number_placeholder(a, number)).collect();
    }
    node.routes = node.routes.iter().map(|r| replace_number_placeholder(r, number)).collect();
    node.station_routes = node.station_routes.iter().map(|r| replace_number_placeholder(r, number)).collect();
    if let Some(radio) = &mut node.radio {
        let span = radio.span();
        let mut unfolded = radio.get_ref().clone();
        let (x, y) = unfolded.step;
        unfolded.shift.0 += x * f64::from(index);
        unfolded.shift.1 += y * f64::from(index);
        if let Some(ns2) = &mut unfolded.ns2 {
            ns2.node += index;
        }
        if let Some(fcd) = &mut unfolded.fcd {
            fcd.vehicle = replace_number_placeholder(&fcd.vehicle, number);
        }
        *radio = Spanned::new(span, unfolded);
    }
    node
}

/// Returns the numbers of the series to which these nodes belong; `None` if they belong to no series.
fn numbers_of_series<'a>(
    nodes: impl Iterator<Item = (Range<usize>, &'a str)>,
    series: &NumbersBySeries,
) -> Result<Option<&[u32]>, ErrorAtPlace> {
    let mut found: Option<&[u32]> = None;
    for (at, name) in nodes.filter(|(_, name)| name.contains(NUMBER_PLACEHOLDER)) {
        let Some(numbers) = series.get(name) else {
            let known = join_quoted_names(series.keys().map(String::as_str).collect());
            return Err((at, format!("there is no series {name:?}; the series are: {known}")));
        };
        if found.is_some_and(|before| before != numbers.as_slice()) {
            return Err((at, format!("the nodes of {name:?} have other numbers than those before")));
        }
        found = Some(numbers);
    }
    Ok(found)
}

fn numbered_end(end: &Spanned<LinkEnd>, number: u32) -> Spanned<LinkEnd> {
    let filled =
        LinkEnd { node: replace_number_placeholder(&end.get_ref().node, number), ..end.get_ref().clone() };
    Spanned::new(end.span(), filled)
}

fn expand_link(link: Link, series: &NumbersBySeries) -> Result<Vec<Link>, ErrorAtPlace> {
    let ends = link.ends.iter().map(|end| (end.span(), end.get_ref().node.as_str()));
    let Some(numbers) = numbers_of_series(ends, series)? else { return Ok(vec![link]) };
    if link.bridge.is_some() {
        let all = |ends: &[Spanned<LinkEnd>]| -> Vec<Spanned<LinkEnd>> {
            let of = |end: &Spanned<LinkEnd>| match end.get_ref().node.contains(NUMBER_PLACEHOLDER) {
                true => numbers.iter().map(|number| numbered_end(end, *number)).collect(),
                false => vec![end.clone()],
            };
            ends.iter().flat_map(of).collect()
        };
        return Ok(vec![Link { ends: all(&link.ends), isolated: all(&link.isolated), ..link }]);
    }
    let one = |number: &u32| Link {
        ends: link.ends.iter().map(|end| numbered_end(end, *number)).collect(),
        label: replace_number_placeholder(&link.label, *number),
        ..link.clone()
    };
    Ok(numbers.iter().map(one).collect())
}

fn expand_probe(probe: Probe, series: &NumbersBySeries) -> Result<Vec<Probe>, ErrorAtPlace> {
    let (one, other) = &probe.between;
    let ends = [one, other].into_iter().map(|node| (node.span(), node.get_ref().as_str()));
    let Some(numbers) = numbers_of_series(ends, series)? else { return Ok(vec![probe]) };
    if !probe.name.contains(NUMBER_PLACEHOLDER) || probe.port.is_some() {
        let message = format!(
            "the probe {:?} is one for each node, so it has {{n}} in its name and no port",
            probe.name
        );
        return Err((one.span(), message));
    }
    let filled = |name: &Spanned<String>, number| {
        Spanned::new(name.span(), replace_number_placeholder(name.get_ref(), number))
    };
    let made = |number: &u32| Probe {
        name: replace_number_placeholder(&probe.name, *number),
        series: Some(probe.name.clone()),
        between: (filled(one, *number), filled(other, *number)),
        ..probe.clone()
    };
    Ok(numbers.iter().map(made).collect())
}
