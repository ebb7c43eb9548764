//! Draws curves over an axis, or bars without an axis. Marks numbers from other sources, such as papers, in
//! the same picture.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{escape_html, put};
use crate::expect::format_number;

/// A point: place on the axis, median, lowest and highest value.
pub type PointWithRange = (f64, f64, f64, f64);

/// A curve of a picture.
#[derive(Debug, Clone)]
pub struct ChartCurve {
    /// Label for the legend.
    pub label: String,
    /// Whether the curve is only for comparison; the picture draws it with dashes.
    pub is_dashed: bool,
    /// Points in order.
    pub points: Vec<PointWithRange>,
}

/// A number from another source, such as a paper, that the picture marks.
#[derive(Debug, Clone)]
pub struct MarkedValue {
    /// Label of the number.
    pub label: String,
    /// Position of the mark on the axis; `None` for a mark along the whole axis.
    pub x: Option<f64>,
    /// Place of the number on the vertical axis.
    pub y: f64,
}

/// An event to mark in the picture, at the moment at which it happened.
#[derive(Debug, Clone)]
pub struct EventMarker {
    /// Label in the legend. Events of the same kind have the same label.
    pub label: String,
    /// Number of the event's kind, from 0; it selects the colour in all charts.
    pub kind_index: usize,
    /// Place of the event on the axis.
    pub x: f64,
}

/// A picture with curves or bars.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Text for readers who cannot see the chart.
    pub title: String,
    /// Label of the horizontal axis; `None` for bars in place of curves.
    pub x: Option<String>,
    /// Label of the vertical axis, with its unit.
    pub y: String,
    /// Whether the vertical axis is logarithmic, whatever the values are.
    pub is_logarithmic: bool,
    /// Measured curves.
    pub curves: Vec<ChartCurve>,
    /// Numbers of other sources.
    pub marks: Vec<MarkedValue>,
    /// Events to mark on the time axis.
    pub event_markers: Vec<EventMarker>,
    /// Places on the horizontal axis at which packets were lost.
    pub lost_at: Vec<f64>,
}

const CURVE_COLORS: [&str; 6] =
    ["var(--s1)", "var(--s2)", "var(--u1)", "var(--u2)", "var(--wait)", "var(--good)"];
/// Height of the axes in pixels.
const PLOT_HEIGHT: f64 = 280.0;
/// Widths in pixels of the margins beside and below the axes.
const LEFT_MARGIN: f64 = 58.0;
const RIGHT_MARGIN: f64 = 16.0;
const BOTTOM_MARGIN: f64 = 44.0;
/// Height in pixels of a line of the legend, and of a row of bars.
const LEGEND_ROW_HEIGHT: f64 = 20.0;
const BAR_ROW_HEIGHT: f64 = 30.0;
/// Line style of event markers.
const EVENT_MARKER_STYLE: &str = "stroke-width=\"1.2\" stroke-dasharray=\"3 3\"";
const LOSS_MARKER_STYLE: &str = "stroke=\"var(--bad)\" stroke-width=\"1.6\"";
/// Maximum number of points of a curve with a dot at each point.
const MAX_POINTS_WITH_DOTS: usize = 30;
/// Ratio of the highest to the lowest value above which the axis is logarithmic.
const LOGARITHMIC_RATIO: f64 = 12.0;
/// Relative difference of the values below which the axis does not begin at zero.
const FLAT_RANGE_SHARE: f64 = 0.3;

/// Scale of the vertical axis.
#[derive(Debug, PartialEq)]
struct AxisScale {
    lowest: f64,
    highest: f64,
    logarithmic: bool,
    axis_ticks: Vec<f64>,
}

/// Returns a round step that gives about five ticks.
fn tick_step(span: f64) -> f64 {
    let rough = span.max(1e-12) / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * decade >= rough * 0.999);
    factor.unwrap_or(10.0) * decade
}

fn ticks_between(low: f64, high: f64, step: f64) -> Vec<f64> {
    let (first, last) = ((low / step - 1e-6).ceil() as i64, (high / step + 1e-6).floor() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

impl AxisScale {
    fn for_values(values: &[f64], log: bool) -> AxisScale {
        let high = values.iter().copied().fold(0.0, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let positive = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if high <= 0.0 {
            return AxisScale { lowest: 0.0, highest: 1.0, logarithmic: false, axis_ticks: vec![0.0, 1.0] };
        }
        if log || (low > 0.0 && high / low > LOGARITHMIC_RATIO) {
            let (low, high) = (positive * 0.8, high * 1.25);
            let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
            let every = if high / low > 300.0 { &[1.0][..] } else { &[1.0, 2.0, 5.0][..] };
            let axis_ticks =
                decades.flat_map(|decade| every.iter().map(move |digit| digit * 10f64.powi(decade)));
            let axis_ticks = axis_ticks.filter(|tick| *tick >= low && *tick <= high).collect();
            return AxisScale { lowest: low, highest: high, logarithmic: true, axis_ticks };
        }
        let flat = low > (1.0 - FLAT_RANGE_SHARE) * high;
        let base = if flat { low - (high - low).max(high * 0.01) * 0.3 } else { 0.0 };
        let step = tick_step(high - base);
        let (low, high) = ((base / step).floor() * step, (high / step * 1.02).ceil() * step);
        AxisScale {
            lowest: low,
            highest: high,
            logarithmic: false,
            axis_ticks: ticks_between(low, high, step),
        }
    }

    /// If the axis shows a share in per cent, ends the axis at 100 %.
    fn limited_to_100_percent(mut self, axis: &str, values: &[f64]) -> AxisScale {
        if axis.ends_with('%') && self.highest > 100.0 && values.iter().all(|value| *value <= 100.0) {
            self.highest = 100.0;
            self.axis_ticks.retain(|tick| *tick <= 100.0);
        }
        self
    }

    /// Returns the height of a value above the bottom, as a share of the axis.
    fn fraction_of_axis(&self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value.max(self.lowest) / self.lowest).ln() / (self.highest / self.lowest).ln(),
            false => (value - self.lowest) / (self.highest - self.lowest),
        };
        part.clamp(0.0, 1.0)
    }
}

/// Returns the picture for a width in pixels.
pub fn draw_chart(chart: &Chart, width: f64) -> String {
    if chart.x.is_some() { draw_line_chart(chart, width) } else { draw_bar_chart(chart, width) }
}

fn curve_color(chart: &Chart, number: usize) -> &'static str {
    // If curves come in pairs, a dashed curve has the colour of its full curve.
    let full = chart.curves.iter().filter(|curve| !curve.is_dashed).count();
    let before =
        chart.curves[..number].iter().filter(|one| one.is_dashed == chart.curves[number].is_dashed).count();
    let pairs = full > 1 && full * 2 == chart.curves.len();
    CURVE_COLORS[if pairs { before } else { number } % CURVE_COLORS.len()]
}

/// Width in pixels of a character of the legend's font.
const CHARACTER_WIDTH: f64 = 6.6;

/// Returns how many characters fit into a width.
fn characters_that_fit(width: f64) -> usize {
    (width / CHARACTER_WIDTH) as usize
}

fn draw_line_chart(chart: &Chart, width: f64) -> String {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let values: Vec<f64> =
        points().flat_map(|point| [point.2, point.3]).chain(chart.marks.iter().map(|mark| mark.y)).collect();
    let scale =
        AxisScale::for_values(&values, chart.is_logarithmic).limited_to_100_percent(&chart.y, &values);
    let (from, to) =
        points().fold((f64::INFINITY, f64::NEG_INFINITY), |range, p| (range.0.min(p.0), range.1.max(p.0)));
    let span = if to > from { to - from } else { 1.0 };
    let (from, to) = (from - 0.02 * span, to + 0.02 * span);
    let x = |value: f64| LEFT_MARGIN + (width - LEFT_MARGIN - RIGHT_MARGIN) * (value - from) / (to - from);
    let legend = legend_entries(chart);
    let top = 24.0 + legend.len() as f64 * LEGEND_ROW_HEIGHT + 8.0;
    let y = |value: f64| top + PLOT_HEIGHT * (1.0 - scale.fraction_of_axis(value));
    let height = top + PLOT_HEIGHT + BOTTOM_MARGIN;
    let mut out = String::new();
    put!(
        out,
        "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape_html(&chart.title)
    );
    let note = match scale.logarithmic {
        true => " (logarithmic)",
        false if scale.lowest > 0.0 => " (the axis does not begin at 0)",
        false => "",
    };
    put!(out, "<text class=\"strong\" x=\"4\" y=\"15\">{}{note}</text>", escape_html(&chart.y));
    for (row, (sign, label)) in legend.iter().enumerate() {
        let at = 24.0 + row as f64 * LEGEND_ROW_HEIGHT + 12.0;
        put!(
            out,
            "<g transform=\"translate({LEFT_MARGIN} {:.1})\">{sign}</g><text x=\"{:.0}\" \
             y=\"{at:.1}\">{}</text>",
            at - 4.0,
            LEFT_MARGIN + 32.0,
            escape_html(&shorten_text(label, characters_that_fit(width - LEFT_MARGIN - 40.0)))
        );
    }
    for tick in &scale.axis_ticks {
        let at = y(*tick);
        put!(
            out,
            "<line x1=\"{LEFT_MARGIN}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--grid)\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - RIGHT_MARGIN,
            LEFT_MARGIN - 6.0,
            at + 4.0,
            format_number(*tick)
        );
    }
    for tick in ticks_between(from, to, tick_step(if width > 600.0 { (to - from) / 2.0 } else { to - from }))
    {
        let at = x(tick);
        put!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.0}\" y2=\"{:.0}\" stroke=\"var(--faint)\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            top + PLOT_HEIGHT,
            top + PLOT_HEIGHT + 5.0,
            top + PLOT_HEIGHT + 19.0,
            format_number(tick)
        );
    }
    put!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
        (LEFT_MARGIN + width - RIGHT_MARGIN) / 2.0,
        height - 6.0,
        escape_html(chart.x.as_deref().unwrap_or(""))
    );
    draw_event_markers(&mut out, chart, top, &x);
    for (number, curve) in chart.curves.iter().enumerate() {
        draw_curve(&mut out, curve, curve_color(chart, number), &x, &y);
    }
    draw_marks(&mut out, chart, width, &x, &y);
    put!(out, "</svg>");
    out
}

/// Returns the rows of the legend: for each row a sign of 24 by 10 pixels, whose left middle is the origin,
/// and a text.
fn legend_entries(chart: &Chart) -> Vec<(String, String)> {
    let curves = chart.curves.iter().enumerate().map(|(number, curve)| {
        let dash = if curve.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let color = curve_color(chart, number);
        let sign = format!("<path d=\"M0 0h24\" stroke=\"{color}\" stroke-width=\"2.5\"{dash}/>");
        (sign, curve.label.clone())
    });
    let mark = (!chart.marks.is_empty()).then(|| {
        let label = "stated in the paper";
        (diamond_element(12.0, 0.0, label), label.to_owned())
    });
    let moments = event_kinds(chart).into_iter().map(|(kind, label)| {
        let color = event_kind_color(chart, kind);
        (format!("<path d=\"M12 -7v14\" stroke=\"{color}\" {EVENT_MARKER_STYLE}/>"), label.to_owned())
    });
    let lost = (!chart.lost_at.is_empty()).then(|| {
        (format!("<path d=\"M12 -5v11\" {LOSS_MARKER_STYLE}/>"), format!("lost ({})", chart.lost_at.len()))
    });
    curves.chain(mark).chain(moments).chain(lost).collect()
}

/// Returns the kinds of events in the chart, with their labels.
fn event_kinds(chart: &Chart) -> BTreeMap<usize, &str> {
    chart.event_markers.iter().map(|moment| (moment.kind_index, moment.label.as_str())).collect()
}

/// Returns the colour of a kind of events. The colours of events come after those of the curves.
fn event_kind_color(chart: &Chart, kind: usize) -> &'static str {
    CURVE_COLORS[(chart.curves.len() + kind) % CURVE_COLORS.len()]
}

/// Draws a line through the picture for each event, and a tick on the axis for each lost packet.
fn draw_event_markers(out: &mut String, chart: &Chart, top: f64, x: &impl Fn(f64) -> f64) {
    for (kind, label) in event_kinds(chart) {
        let at = chart.event_markers.iter().filter(|moment| moment.kind_index == kind);
        let lines: String = at.map(|moment| format!("M{:.1} {top:.0}v{PLOT_HEIGHT}", x(moment.x))).collect();
        let color = event_kind_color(chart, kind);
        put!(
            out,
            "<path d=\"{lines}\" stroke=\"{color}\" {EVENT_MARKER_STYLE}><title>{}</title></path>",
            escape_html(label)
        );
    }
    let axis_ticks: String =
        chart.lost_at.iter().map(|lost| format!("M{:.1} {:.0}v-11", x(*lost), top + PLOT_HEIGHT)).collect();
    if !axis_ticks.is_empty() {
        put!(out, "<path d=\"{axis_ticks}\" {LOSS_MARKER_STYLE}><title>lost</title></path>");
    }
}

/// Draws the medians as a line with dots, and a shade from the lowest to the highest value.
fn draw_curve(
    out: &mut String,
    curve: &ChartCurve,
    color: &str,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let join = |points: Vec<String>| points.join("L");
    let middle = join(curve.points.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1))).collect());
    let upper = join(curve.points.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.3))).collect());
    let lower = join(curve.points.iter().rev().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.2))).collect());
    let dash = if curve.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    put!(
        out,
        "<path fill=\"{color}\" fill-opacity=\".15\" d=\"M{upper}L{lower}z\"/>\
         <path fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{dash} \
         d=\"M{middle}\"/>"
    );
    if curve.points.len() <= MAX_POINTS_WITH_DOTS {
        for point in &curve.points {
            put!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"><title>{}: {}</title></circle>",
                x(point.0),
                y(point.1),
                escape_html(&curve.label),
                format_number(point.1)
            );
        }
    }
}

fn draw_marks(out: &mut String, chart: &Chart, width: f64, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) {
    let mut taken: Vec<f64> = Vec::new();
    for mark in &chart.marks {
        let at = y(mark.y);
        if let Some(place) = mark.x {
            // The number stands beside its mark, on the side with more room.
            let (side, anchor) = if x(place) < width / 2.0 { (10.0, "start") } else { (-10.0, "end") };
            put!(
                out,
                "{}<text class=\"strong halo\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                diamond_element(x(place), at, &mark.label),
                x(place) + side,
                at + 4.0,
                format_number(mark.y)
            );
            continue;
        }
        put!(
            out,
            "<line x1=\"{LEFT_MARGIN}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--ink)\" \
             stroke-dasharray=\"2 4\"/>{}",
            width - RIGHT_MARGIN,
            diamond_element(LEFT_MARGIN, at, &mark.label)
        );
        // The label stands above its line, or below it if another label is there already.
        let above = at - 5.0;
        let place = if taken.iter().any(|other| (other - above).abs() < 14.0) { at + 14.0 } else { above };
        taken.push(place);
        let text = shorten_text(
            &format!("{}: {}", mark.label, format_number(mark.y)),
            characters_that_fit(width - LEFT_MARGIN - RIGHT_MARGIN),
        );
        // The label stands on the side on which it hides less of the curves.
        let wide = text.chars().count() as f64 * CHARACTER_WIDTH;
        let hidden = |from: f64| {
            let points = chart.curves.iter().flat_map(|curve| &curve.points);
            let inside = |p: &&PointWithRange| {
                (from..from + wide).contains(&x(p.0)) && (y(p.1) + 4.0 - place).abs() < 12.0
            };
            points.filter(inside).count()
        };
        let (left, right) = (LEFT_MARGIN + 12.0, width - RIGHT_MARGIN - 2.0);
        let (side, anchor) =
            if hidden(left) < hidden(right - wide) { (left, "start") } else { (right, "end") };
        put!(
            out,
            "<text class=\"strong halo\" x=\"{side:.0}\" y=\"{place:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape_html(&text)
        );
    }
}

fn diamond_element(x: f64, y: f64, title: &str) -> String {
    format!(
        "<path d=\"M{:.1} {y:.1}l5.5 -5.5l5.5 5.5l-5.5 5.5z\" fill=\"var(--card)\" stroke=\"var(--ink)\" \
         stroke-width=\"1.6\"><title>{}</title></path>",
        x - 5.5,
        escape_html(title)
    )
}

fn shorten_text(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// Draws a bar for each curve's first point, and an outlined bar for each mark.
fn draw_bar_chart(chart: &Chart, width: f64) -> String {
    let own = chart.curves.iter().filter_map(|curve| Some((curve, curve.points.first()?)));
    let own: Vec<(&ChartCurve, &PointWithRange)> = own.collect();
    let values = own.iter().map(|(_, point)| point.3).chain(chart.marks.iter().map(|mark| mark.y));
    let highest = values.fold(0.0, f64::max).max(1e-12);
    let rows = own.len() + chart.marks.len();
    let top = 30.0;
    let pitch = BAR_ROW_HEIGHT + LEGEND_ROW_HEIGHT;
    let height = top + rows as f64 * pitch + 6.0;
    let x = |value: f64| 4.0 + (width - 90.0) * (value.max(0.0) / highest);
    let mut out = String::new();
    put!(
        out,
        "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">\
         <text class=\"strong\" x=\"4\" y=\"15\">{}</text>",
        escape_html(&chart.title),
        escape_html(&chart.y)
    );
    let mut at = top;
    let mut row = |out: &mut String, label: &str, value: f64, range: Option<(f64, f64)>, style: &str| {
        put!(
            out,
            "<text x=\"4\" y=\"{:.1}\">{}</text><rect x=\"4\" y=\"{:.1}\" width=\"{:.1}\" height=\"20\" \
             rx=\"3\" {style}/><text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            at + 12.0,
            escape_html(&shorten_text(label, characters_that_fit(width))),
            at + 18.0,
            (x(value) - 4.0).max(1.0),
            x(range.map_or(value, |range| range.1.max(value))) + 8.0,
            at + 32.5,
            format_number(value)
        );
        if let Some((low, high)) = range.filter(|(low, high)| high > low) {
            put!(
                out,
                "<path d=\"M{:.1} {mid:.1}H{:.1}M{:.1} {:.1}v8M{:.1} {:.1}v8\" stroke=\"var(--ink)\" \
                 fill=\"none\"/>",
                x(low),
                x(high),
                x(low),
                at + 24.0,
                x(high),
                at + 24.0,
                mid = at + 28.0
            );
        }
        at += pitch;
    };
    for (number, (curve, point)) in own.iter().enumerate() {
        let style = format!("fill=\"{}\"", curve_color(chart, number));
        row(&mut out, &curve.label, point.1, Some((point.2, point.3)), &style);
    }
    for mark in &chart.marks {
        let style = "fill=\"none\" stroke=\"var(--ink)\" stroke-dasharray=\"4 3\"";
        row(&mut out, &format!("paper: {}", mark.label), mark.y, None, style);
    }
    put!(out, "</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_chart(x: Option<&str>) -> Chart {
        let points = vec![(80.0, 80.0, 79.0, 80.5), (95.0, 92.1, 92.0, 92.3)];
        Chart {
            title: "a <chart>".into(),
            x: x.map(str::to_owned),
            y: "Mbit/s".into(),
            is_logarithmic: false,
            curves: vec![
                ChartCurve { label: "plain & simple".into(), is_dashed: true, points: points.clone() },
                ChartCurve { label: "carnet".into(), is_dashed: false, points },
            ],
            marks: vec![MarkedValue { label: "router".into(), x: None, y: 92.8 }],
            ..Chart::default()
        }
    }

    #[test]
    fn chart_scale_covers_its_values() {
        let scale = AxisScale::for_values(&[80.0, 92.8], false);
        assert_eq!((scale.lowest, scale.highest, scale.logarithmic), (75.0, 95.0, false));
        assert_eq!(scale.axis_ticks, [75.0, 80.0, 85.0, 90.0, 95.0]);
        let scale = AxisScale::for_values(&[0.05, 0.6], false);
        assert!(!scale.logarithmic && scale.lowest == 0.0, "{scale:?}");
        let scale = AxisScale::for_values(&[0.05, 10.0], false);
        assert!(
            scale.logarithmic && scale.axis_ticks.contains(&0.1) && scale.fraction_of_axis(0.05) > 0.0,
            "{scale:?}"
        );
        assert_eq!(AxisScale::for_values(&[], false).axis_ticks, [0.0, 1.0]);
        assert!(AxisScale::for_values(&[0.0, 5.0], true).lowest > 0.0);
        let scale =
            AxisScale::for_values(&[0.0, 100.0], false).limited_to_100_percent("lost, %", &[0.0, 100.0]);
        assert_eq!((scale.highest, scale.axis_ticks.last().copied()), (100.0, Some(100.0)));
        let scale =
            AxisScale::for_values(&[0.0, 130.0], false).limited_to_100_percent("more, %", &[0.0, 130.0]);
        assert!(scale.highest > 130.0, "{scale:?}");
    }

    #[test]
    fn chart_elements_stay_within_the_picture() {
        for (x, wanted) in [(Some("offered"), "<path"), (None, "<rect")] {
            for width in [1020.0, 400.0] {
                let svg = draw_chart(&test_chart(x), width);
                assert!(svg.contains(wanted) && svg.contains("plain &amp; simple"), "{svg}");
                assert!(svg.contains("92.8") && svg.contains("a &lt;chart&gt;"), "{svg}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
        let moments =
            [1.0, 2.0].map(|x| EventMarker { label: "a <move>".into(), kind_index: 0, x: 80.0 + x });
        let svg = draw_chart(
            &Chart {
                event_markers: moments.into(),
                lost_at: vec![82.0, 83.0, 84.0],
                ..test_chart(Some("time"))
            },
            400.0,
        );
        // The legend has one line for each kind of events. The picture has a line for each event.
        assert_eq!(svg.matches("a &lt;move&gt;</text>").count(), 1, "{svg}");
        assert!(svg.contains("lost (3)</text>"), "{svg}");
        assert_eq!((svg.matches("v280").count(), svg.matches("v-11").count()), (2, 3), "{svg}");
        // The curve is high on the right. The label of the paper's number stands on the side on which it does
        // not hide the curve.
        for (y, side) in [(91.9, "start"), (92.8, "end")] {
            let marks = vec![MarkedValue { label: "router".into(), x: None, y }];
            let svg = draw_chart(&Chart { marks, ..test_chart(Some("offered")) }, 400.0);
            let paper = svg.split("<text").find(|text| text.contains("router: ")).expect("a label");
            assert!(paper.contains(&format!("text-anchor=\"{side}\"")), "{paper}");
        }
        let empty = Chart { x: Some("x".into()), ..Chart::default() };
        assert!(!draw_chart(&empty, 400.0).contains("<circle"));
    }
}
