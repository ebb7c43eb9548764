//! Draws the testbed: nodes at the scenario's positions, and links with the names of their interfaces.

use std::fmt::Write;

use super::{escape_html, put};
use crate::results::{Topology, TopologyNode};

/// Returns the picture of the testbed. With `turned` it is turned by a quarter, for narrow screens.
pub fn draw_topology(topology: &Topology, turned: bool) -> String {
    let (cell_w, cell_h, box_w, box_h) =
        if turned { (128.0, 104.0, 104.0, 46.0) } else { (172.0, 112.0, 118.0, 50.0) };
    let place = |n: &TopologyNode| if turned { (n.y, n.x) } else { (n.x, n.y) };
    let most = |f: fn((f64, f64)) -> f64| topology.nodes.iter().map(|n| f(place(n))).fold(0.0, f64::max);
    let width = most(|p| p.0) * cell_w + box_w + 24.0;
    let height = most(|p| p.1) * cell_h + box_h + 24.0;
    let center = |n: &TopologyNode| {
        let (x, y) = place(n);
        (12.0 + box_w / 2.0 + x * cell_w, 12.0 + box_h / 2.0 + y * cell_h)
    };
    let find = |name: &str| topology.nodes.iter().find(|n| n.name == name).map(center);
    let mut out = String::new();
    put!(
        out,
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"The testbed\" \
         style=\"max-width:{width:.0}px;margin:auto\">"
    );
    let mut texts = String::new();
    for link in &topology.links {
        let ends: Vec<((f64, f64), &str)> =
            link.ends.iter().filter_map(|(node, i)| Some((find(node)?, i.as_str()))).collect();
        // A link with two ends is a line; a link with more ends is a star.
        let hub = if let [(a, _), (b, _)] = ends[..] {
            put!(
                out,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"var(--faint)\" \
                 stroke-width=\"1.6\"/>",
                a.0,
                a.1,
                b.0,
                b.1
            );
            None
        } else {
            let n = ends.len().max(1) as f64;
            let hub =
                (ends.iter().map(|e| e.0.0).sum::<f64>() / n, ends.iter().map(|e| e.0.1).sum::<f64>() / n);
            for (end, _) in &ends {
                put!(
                    out,
                    "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"var(--faint)\" \
                     stroke-width=\"1.6\"/>",
                    end.0,
                    end.1,
                    hub.0,
                    hub.1
                );
            }
            Some(hub)
        };
        for (n, (end, interface)) in ends.iter().enumerate() {
            let other = hub.unwrap_or_else(|| ends[1 - n.min(1)].0);
            let (x, y) = position_of_link_label(*end, other, box_w, box_h);
            put!(
                texts,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                escape_html(interface)
            );
        }
    }
    for n in &topology.nodes {
        let (x, y) = center(n);
        let (stroke, thick) = if n.carnet { ("var(--s1)", 2.2) } else { ("var(--rule)", 1.4) };
        let lines: Vec<String> = n.addresses.iter().map(|(i, a)| format!("{i}: {}", a.join(", "))).collect();
        put!(
            out,
            "<g><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{box_w}\" height=\"{box_h}\" rx=\"8\" \
             fill=\"var(--band)\" stroke=\"{stroke}\" stroke-width=\"{thick}\"/>\
             <text class=\"strong\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
            escape_html(&lines.join("\n")),
            x - box_w / 2.0,
            y - box_h / 2.0,
            y - 3.0,
            escape_html(&n.name),
            y + 13.0,
            escape_html(&n.role)
        );
    }
    out.push_str(&texts);
    put!(out, "</svg>");
    out
}

/// Returns the place of an interface's name: just outside the node's box, beside the line.
fn position_of_link_label(end: (f64, f64), other: (f64, f64), box_w: f64, box_h: f64) -> (f64, f64) {
    let (dx, dy) = (other.0 - end.0, other.1 - end.1);
    let length = dx.hypot(dy).max(1.0);
    let out = |half: f64, d: f64| if d.abs() < 1e-9 { f64::INFINITY } else { half / d.abs() };
    let edge = out(box_w / 2.0, dx).min(out(box_h / 2.0, dy)).min(1.0);
    let (x, y) = (end.0 + dx * edge + dx / length * 13.0, end.1 + dy * edge + dy / length * 13.0);
    if dx.abs() < 1.0 {
        // The name stands beside a vertical line.
        (x - 14.0, y + 4.0)
    } else if dy.abs() < 1.0 {
        (x, y - 6.0)
    } else {
        // The name is beside a slanting line, on the side on which the line does not cross it.
        (x - 12.0 * (dx * dy).signum(), y + 4.0)
    }
}
