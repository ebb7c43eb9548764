//! Draws the radios on the map: their first places, their movements, their ranges, and the circles to which
//! packets go.

use std::fmt::Write;

use super::{escape_html, put};
use crate::results::{Map, MapNode};

/// Maximum number of nodes whose names are in the picture; with more, only tooltips have the names.
const MAX_LABELLED_NODES: usize = 20;
/// Maximum number of nodes whose ranges the picture shows; with more, it shows only the senders' ranges.
const MAX_NODES_WITH_RANGE: usize = 6;
/// Width in pixels of the margin around the map.
const MAP_MARGIN: f64 = 16.0;
/// Height in pixels of the scale at the bottom.
const SCALE_BAR_HEIGHT: f64 = 30.0;

/// Returns the picture for a width in pixels.
pub fn draw_map(map: &Map, width: f64, wide: bool) -> String {
    let start = |n: &MapNode| n.way.first().copied();
    let few = map.nodes.len() <= MAX_NODES_WITH_RANGE;
    let ranged: Vec<&MapNode> = map.nodes.iter().filter(|n| few || map.senders.contains(&n.name)).collect();
    let discs = map.circles.iter().map(|c| (c.center, c.radius));
    let discs: Vec<((f64, f64), f64)> =
        discs.chain(ranged.iter().filter_map(|n| Some((start(n)?, map.range_m)))).collect();
    let dots = map.nodes.iter().flat_map(|n| &n.way).map(|p| (*p, 0.0));
    let corners = discs.iter().copied().chain(dots).flat_map(|((x, y), r)| [(x - r, y - r), (x + r, y + r)]);
    let (mut low, mut high) = ((f64::INFINITY, f64::INFINITY), (f64::NEG_INFINITY, f64::NEG_INFINITY));
    for (x, y) in corners {
        low = (low.0.min(x), low.1.min(y));
        high = (high.0.max(x), high.1.max(y));
    }
    if !low.0.is_finite() {
        return String::new();
    }
    let span = ((high.0 - low.0).max(1.0), (high.1 - low.1).max(1.0));
    // Pixels per metre: the map uses the whole width, but its height is at most half the width.
    let scale = ((width - 2.0 * MAP_MARGIN) / span.0).min(width * 0.5 / span.1);
    let left = (width - span.0 * scale) / 2.0;
    let place = |(x, y): (f64, f64)| (left + (x - low.0) * scale, MAP_MARGIN + (high.1 - y) * scale);
    let height = span.1 * scale + 2.0 * MAP_MARGIN + SCALE_BAR_HEIGHT;
    let lanes = LaneSpacing::of_map(map, scale);
    let place_node = |p: (f64, f64)| {
        let (x, y) = place(p);
        (x, y + lanes.shifted_y(p.1))
    };
    let mut out = String::new();
    put!(
        out,
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"The radios on the map\">"
    );
    for circle in &map.circles {
        let (x, y) = place(circle.center);
        put!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"var(--s2)\" fill-opacity=\".1\" \
             stroke=\"var(--s2)\" stroke-width=\"1.4\"><title>{}: {:.0} m</title></circle>",
            circle.radius * scale,
            escape_html(&circle.name),
            circle.radius
        );
    }
    for node in ranged {
        let Some((x, y)) = start(node).map(place) else { continue };
        put!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"none\" stroke=\"var(--s1)\" \
             stroke-opacity=\".6\" stroke-dasharray=\"5 4\"><title>range of {}: {:.0} m</title></circle>",
            map.range_m * scale,
            escape_html(&node.name),
            map.range_m
        );
    }
    for node in map.nodes.iter().filter(|n| n.way.len() > 1) {
        let points: Vec<String> =
            node.way.iter().map(|p| place_node(*p)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        put!(
            out,
            "<path fill=\"none\" stroke=\"var(--faint)\" stroke-opacity=\".5\" stroke-width=\"1.4\" \
             d=\"M{}\"/>",
            points.join("L")
        );
    }
    let radius = if map.nodes.len() > MAX_LABELLED_NODES { 3.0 } else { 5.0 };
    for node in &map.nodes {
        let Some((x, y)) = start(node).map(place_node) else { continue };
        let color = if map.senders.contains(&node.name) { "var(--s2)" } else { "var(--s1)" };
        put!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\" stroke=\"var(--card)\">\
             <title>{}, {}</title></circle>",
            escape_html(&node.name),
            escape_html(&node.role)
        );
        if wide && map.nodes.len() <= MAX_LABELLED_NODES || few {
            put!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 8.0, y - 7.0, escape_html(&node.name));
        }
    }
    // The scale bar shows a round number of metres, and takes at most a fifth of the width.
    let most = width / 5.0 / scale;
    let step = 10f64.powf(most.log10().floor());
    let metres = [5.0, 2.0, 1.0].into_iter().map(|f| f * step).find(|m| *m <= most).unwrap_or(step);
    let (from, to, y) = (MAP_MARGIN, MAP_MARGIN + metres * scale, height - 12.0);
    put!(
        out,
        "<path fill=\"none\" stroke=\"var(--soft)\" d=\"M{from:.1} {:.1}v8h{:.1}v-8\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{metres:.0} m</text></svg>",
        y - 8.0,
        to - from,
        to + 8.0,
        y
    );
    out
}

/// Distances of the lanes of a long road. If the lanes would fall on one line in the picture, it shows them a
/// dot's width apart.
struct LaneSpacing {
    middle_y: f64,
    /// Pixels per metre that the picture adds to the scale for the distance of lanes.
    added_pixels_per_metre: f64,
}

impl LaneSpacing {
    /// Pixels from the first lane to the last lane.
    const LANES_WIDTH_PIXELS: f64 = 27.0;

    fn of_map(map: &Map, scale: f64) -> LaneSpacing {
        let ys = || map.nodes.iter().flat_map(|n| &n.way).map(|p| p.1);
        let (low, high) = (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
        let wide = high - low;
        let together =
            map.nodes.len() > MAX_LABELLED_NODES && wide > 0.1 && wide * scale < Self::LANES_WIDTH_PIXELS;
        let more = if together { Self::LANES_WIDTH_PIXELS / wide - scale } else { 0.0 };
        LaneSpacing { middle_y: (low + high) / 2.0, added_pixels_per_metre: more }
    }

    /// Returns by how many pixels the picture shifts a node down.
    fn shifted_y(&self, y: f64) -> f64 {
        if self.added_pixels_per_metre > 0.0 {
            (self.middle_y - y) * self.added_pixels_per_metre
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::MapCircle;

    fn map_with_nodes(nodes: usize) -> Map {
        let node = |n: usize| MapNode {
            name: format!("car{n}"),
            role: "<car>".into(),
            way: vec![(n as f64 * 100.0, 0.0), (n as f64 * 100.0, 50.0)],
        };
        Map {
            range_m: 300.0,
            nodes: (0..nodes).map(node).collect(),
            circles: vec![MapCircle { name: "warning".into(), center: (0.0, 0.0), radius: 200.0 }],
            senders: vec!["car1".into()],
        }
    }

    #[test]
    fn map_labels_a_few_nodes() {
        let picture = draw_map(&map_with_nodes(3), 1020.0, true);
        assert!(picture.contains(">car2</text>") && picture.contains("&lt;car&gt;"), "{picture}");
        assert_eq!(picture.matches("range of").count(), 3);
        assert!(picture.contains("warning: 200 m") && picture.contains(">200 m</text>"), "{picture}");
    }

    #[test]
    fn map_uses_tooltips_for_many_nodes() {
        let picture = draw_map(&map_with_nodes(100), 1020.0, true);
        assert_eq!((picture.matches("<text").count(), picture.matches("range of").count()), (1, 1));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        assert_eq!(draw_map(&Map::default(), 1020.0, true), "");
    }

    #[test]
    fn map_separates_lanes() {
        let lane = |n: usize| MapNode {
            name: format!("car{n}"),
            role: String::new(),
            way: vec![(n as f64 * 100.0, (n % 2) as f64 * 4.0)],
        };
        let road = Map { nodes: (0..60).map(lane).collect(), range_m: 500.0, ..Map::default() };
        let picture = draw_map(&road, 1020.0, true);
        let heights: Vec<f64> =
            picture.split("cy=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
        assert!((heights[0] - heights[1] - LaneSpacing::LANES_WIDTH_PIXELS).abs() < 0.2, "{heights:?}");
    }
}
