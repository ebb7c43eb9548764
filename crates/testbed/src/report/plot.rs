//! Draws the run against time: active uplink, round-trip times, one-way delays, losses and throughput. Each
//! action is a line through all panels.

use super::{escape_html, put};
use crate::expect::format_number;
use crate::results::{BroadcastPoint, NamedSeries, Results};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Widths in pixels of the left margin, for the numbers of the axis, and of the right margin.
const LEFT_MARGIN: f64 = 46.0;
const RIGHT_MARGIN: f64 = 14.0;
const PANEL_HEIGHT: f64 = 116.0;
/// Height in pixels above a panel, for its title and legend.
const PANEL_TITLE_HEIGHT: f64 = 34.0;
/// Height in pixels above a panel whose legend is below the title.
const PANEL_TITLE_HEIGHT_NARROW: f64 = 50.0;

fn title_height(wide: bool) -> f64 {
    if wide { PANEL_TITLE_HEIGHT } else { PANEL_TITLE_HEIGHT_NARROW }
}

/// Time, median and highest value of each step of 100 ms.
type TimeSteps = Vec<(f64, f64, f64)>;

/// Maps values to heights within a panel.
struct AxisScale {
    lowest: f64,
    highest: f64,
    logarithmic: bool,
}

impl AxisScale {
    /// Creates a logarithmic scale of whole decades that contain all values.
    fn logarithmic_for(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        if !low.is_finite() {
            return Self { lowest: 0.1, highest: 1.0, logarithmic: true };
        }
        let low = 10f64.powf(low.log10().floor());
        let high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
        Self { lowest: low, highest: high, logarithmic: true }
    }

    /// Creates a linear scale from zero to a round number above all values.
    fn linear_for(values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max).max(1e-9);
        let step = 10f64.powf(high.log10().floor());
        let factor = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].into_iter().find(|f| f * step >= high * 1.02);
        Self { lowest: 0.0, highest: factor.unwrap_or(10.0) * step, logarithmic: false }
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.lowest) / self.lowest).log10() / (self.highest / self.lowest).log10()
        } else {
            (value - self.lowest) / (self.highest - self.lowest)
        };
        PANEL_HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }

    fn axis_ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return [0.0, 0.5, 1.0].map(|part| self.highest * part).into();
        }
        let decades = (self.highest / self.lowest).log10().round() as i32;
        (0..=decades).map(|d| self.lowest * 10f64.powi(d)).collect()
    }
}

/// One line of a panel.
struct TimelineCurve {
    label: String,
    color: &'static str,
    steps: TimeSteps,
}

struct PlotPanel {
    title: &'static str,
    scale: AxisScale,
    curves: Vec<TimelineCurve>,
    lost_at: Vec<f64>,
}

const CURVE_COLORS: [&str; 2] = ["var(--s1)", "var(--s2)"];

/// Returns the plot for a width in pixels.
pub fn draw_timeline(r: &Results, width: f64) -> String {
    let wide = width > 600.0;
    let x = |t: f64| {
        LEFT_MARGIN + (width - LEFT_MARGIN - RIGHT_MARGIN) * (t / r.duration_s.max(1e-9)).clamp(0.0, 1.0)
    };
    let panels = panels_of_run(r);
    let top = match (r.actions.is_empty(), wide) {
        (true, _) => 4.0,
        (false, true) => 44.0,
        (false, false) => 28.0,
    };
    let band = if r.active.is_empty() { 0.0 } else { 40.0 };
    let height = top + band + panels.len() as f64 * (title_height(wide) + PANEL_HEIGHT) + 34.0;
    let mut out = String::new();
    put!(out, "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"The run against time\">");
    // Each action has a numbered mark, a label if there is room, and a line through all panels.
    let bottom = height - 30.0;
    for (n, a) in r.actions.iter().enumerate() {
        let at = x(a.at_s);
        put!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.0}\" y2=\"{bottom:.0}\" stroke=\"var(--faint)\" \
             stroke-dasharray=\"3 3\"/><circle cx=\"{at:.1}\" cy=\"{:.0}\" r=\"9\" fill=\"var(--soft)\">\
             <title>{}</title></circle><text class=\"invert\" x=\"{at:.1}\" y=\"{:.0}\" \
             text-anchor=\"middle\">{}</text>",
            top - 8.0,
            top - 15.0,
            escape_html(&a.label),
            top - 11.0,
            n + 1
        );
        if wide {
            // The label is centred above its mark, within the picture.
            let half = a.label.chars().count() as f64 * 3.1;
            let middle = at.clamp(LEFT_MARGIN + half - 20.0, width - half - 4.0);
            put!(
                out,
                "<text class=\"strong\" x=\"{middle:.1}\" y=\"12\" text-anchor=\"middle\">{}</text>",
                escape_html(&a.label)
            );
        }
    }
    draw_active_uplinks(&mut out, r, top + 4.0, wide, &x);
    let mut y = top + band;
    for panel in &panels {
        draw_panel(&mut out, panel, y, width, wide, &x);
        y += title_height(wide) + PANEL_HEIGHT;
    }
    draw_time_axis(&mut out, r.duration_s, y, wide, &x);
    put!(out, "</svg>");
    out
}

fn panels_of_run(r: &Results) -> Vec<PlotPanel> {
    let mut panels = Vec::new();
    let curves = |lines: Vec<(String, TimeSteps)>| -> Vec<TimelineCurve> {
        let colors = CURVE_COLORS.into_iter().cycle();
        lines
            .into_iter()
            .zip(colors)
            .map(|((label, steps), color)| TimelineCurve { label, color, steps })
            .collect()
    };
    let all = |curves: &[TimelineCurve]| -> Vec<f64> {
        curves.iter().flat_map(|c| &c.steps).flat_map(|s| [s.1, s.2]).collect()
    };
    if !r.series.rtt.is_empty() {
        let lines = r.series.rtt.iter().map(|l| (l.label.clone(), summarize_in_steps(&l.points))).collect();
        let curves = curves(lines);
        let scale = AxisScale::logarithmic_for(all(&curves).into_iter());
        let lost =
            r.series.rtt.iter().flat_map(|l| &l.points).filter(|p| p.1.is_none()).map(|p| p.0).collect();
        panels.push(PlotPanel { title: "round-trip time, ms", scale, curves, lost_at: lost });
    }
    if !r.series.delay.is_empty() {
        let curves = curves(r.series.delay.iter().map(|l| (l.label.clone(), l.points.clone())).collect());
        let scale = AxisScale::logarithmic_for(all(&curves).into_iter());
        let lost = r.series.lost.iter().flat_map(|l| l.points.clone()).collect();
        panels.push(PlotPanel { title: "one-way delay, ms", scale, curves, lost_at: lost });
    }
    if !r.series.broadcasts.is_empty() {
        let steps = |l: &NamedSeries<BroadcastPoint>| {
            l.points.iter().filter_map(|p| Some((p.0, p.2?, p.3?))).collect()
        };
        let curves = curves(r.series.broadcasts.iter().map(|l| (l.label.clone(), steps(l))).collect());
        let scale = AxisScale::logarithmic_for(all(&curves).into_iter());
        let missed = r.series.broadcasts.iter().flat_map(|l| &l.points).filter(|p| p.1 < 100.0);
        let lost = missed.map(|p| p.0).collect();
        panels.push(PlotPanel { title: "broadcast until delivered, ms", scale, curves, lost_at: lost });
    }
    if !r.series.load.is_empty() {
        let curves = curves(vec![("average, up to the highest".into(), r.series.load.clone())]);
        let scale = AxisScale::linear_for(all(&curves).into_iter());
        panels.push(PlotPanel { title: "channel busy, %", scale, curves, lost_at: Vec::new() });
    }
    if let Some(t) = r.series.throughput.first() {
        let up = t.points.iter().map(|p| (p.0, p.1, p.1)).collect();
        let down = t.points.iter().map(|p| (p.0, p.2, p.2)).collect();
        let curves = curves(vec![("from on board".into(), up), ("to on board".into(), down)]);
        let scale = AxisScale::linear_for(all(&curves).into_iter());
        panels.push(PlotPanel { title: "TCP throughput, Mbit/s", scale, curves, lost_at: Vec::new() });
    }
    panels
}

/// Returns medians and highest values in steps of 100 ms.
fn summarize_in_steps(points: &[(f64, Option<f64>)]) -> TimeSteps {
    let mut steps: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (t, value) in points {
        if let Some(value) = value {
            steps.entry((t.max(0.0) * 10.0) as u64).or_default().push(*value);
        }
    }
    steps
        .into_iter()
        .map(|(step, mut values)| {
            values.sort_by(f64::total_cmp);
            let last = values.len() - 1;
            (step as f64 / 10.0 + 0.05, values[last / 2], values[last])
        })
        .collect()
}

/// Draws the band of active uplinks.
fn draw_active_uplinks(out: &mut String, r: &Results, y: f64, wide: bool, x: &impl Fn(f64) -> f64) {
    let mut uplinks: Vec<&str> = r.active.iter().filter_map(|a| a.uplink.as_deref()).collect();
    uplinks.sort_unstable();
    uplinks.dedup();
    for a in &r.active {
        let (from, to) = (x(a.from_s), x(a.to_s));
        let color = match a.uplink.as_deref().and_then(|u| uplinks.iter().position(|v| *v == u)) {
            None => "var(--bad)",
            Some(n) if n % 2 == 0 => "var(--u1)",
            Some(_) => "var(--u2)",
        };
        let name = escape_html(a.uplink.as_deref().unwrap_or("none"));
        put!(
            out,
            "<rect x=\"{:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"20\" rx=\"4\" fill=\"{color}\">\
             <title>{name} from {:.2} s to {:.2} s</title></rect>",
            from + 1.0,
            (to - from - 2.0).max(1.0),
            a.from_s,
            a.to_s
        );
        if to - from > 26.0 {
            let text = if wide && to - from > 90.0 { format!("{name} active") } else { name };
            put!(
                out,
                "<text class=\"invert\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{text}</text>",
                (from + to) / 2.0,
                y + 14.5
            );
        }
    }
}

fn draw_panel(out: &mut String, panel: &PlotPanel, y: f64, width: f64, wide: bool, x: &impl Fn(f64) -> f64) {
    put!(out, "<text class=\"strong\" x=\"{LEFT_MARGIN}\" y=\"{:.0}\">{}</text>", y + 20.0, panel.title);
    let mut at = width - RIGHT_MARGIN;
    let lost = (!panel.lost_at.is_empty()).then_some(("lost", "var(--bad)"));
    let legend = panel.curves.iter().map(|c| (c.label.as_str(), c.color));
    let entries: Vec<(&str, &str)> = legend.chain(lost).collect();
    let line = if wide { y + 20.0 } else { y + 38.0 };
    for (label, color) in entries.iter().rev() {
        put!(out, "<text x=\"{at:.0}\" y=\"{line:.0}\" text-anchor=\"end\">{}</text>", escape_html(label));
        at -= label.chars().count() as f64 * 6.9 + 6.0;
        put!(
            out,
            "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{color}\"/>",
            at - 8.0,
            line - 9.0
        );
        at -= 22.0;
    }
    let top = y + title_height(wide);
    for tick in panel.scale.axis_ticks() {
        let h = top + panel.scale.y(tick);
        put!(
            out,
            "<line x1=\"{LEFT_MARGIN}\" x2=\"{:.0}\" y1=\"{h:.1}\" y2=\"{h:.1}\" stroke=\"var(--grid)\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - RIGHT_MARGIN,
            LEFT_MARGIN - 6.0,
            h + 4.0,
            format_number(tick)
        );
    }
    for curve in &panel.curves {
        draw_curve(out, curve, &panel.scale, top, x);
    }
    let mut last = f64::NEG_INFINITY;
    let mut lost: Vec<f64> = panel.lost_at.iter().map(|t| x(*t)).collect();
    lost.sort_by(f64::total_cmp);
    put!(out, "<path stroke=\"var(--bad)\" stroke-width=\"1.6\" d=\"");
    for at in lost {
        // If two ticks are closer than the width of a tick, draw only the first one.
        if at - last >= 0.8 {
            put!(out, "M{at:.1} {:.1}v-11", top + PANEL_HEIGHT);
            last = at;
        }
    }
    put!(out, "\"/>");
}

/// Draws the median as a line and a shade up to the highest value. A missing step breaks the line.
fn draw_curve(out: &mut String, curve: &TimelineCurve, scale: &AxisScale, top: f64, x: &impl Fn(f64) -> f64) {
    let mut runs: Vec<&[(f64, f64, f64)]> = Vec::new();
    let mut from = 0;
    let usual = curve.steps.windows(2).map(|w| w[1].0 - w[0].0).fold(f64::INFINITY, f64::min);
    for n in 1..=curve.steps.len() {
        if n == curve.steps.len() || curve.steps[n].0 - curve.steps[n - 1].0 > usual * 2.5 {
            runs.push(&curve.steps[from..n]);
            from = n;
        }
    }
    for run in runs {
        let point = |t: f64, v: f64| format!("{:.1} {:.1}", x(t), top + scale.y(v));
        let there: Vec<String> = run.iter().map(|s| point(s.0, s.1)).collect();
        let back: Vec<String> = run.iter().rev().map(|s| point(s.0, s.2)).collect();
        put!(
            out,
            "<path fill=\"{}\" fill-opacity=\".16\" d=\"M{}L{}z\"/>",
            curve.color,
            there.join("L"),
            back.join("L")
        );
        put!(
            out,
            "<path fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\" d=\"M{}\"/>",
            curve.color,
            there.join("L")
        );
    }
}

fn draw_time_axis(out: &mut String, duration: f64, y: f64, wide: bool, x: &impl Fn(f64) -> f64) {
    let about = if wide { 10.0 } else { 4.0 };
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
    let step = steps.into_iter().find(|s| duration / s <= about).unwrap_or(1200.0);
    let mut t = 0.0;
    while t <= duration {
        let at = x(t);
        put!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{y:.0}\" y2=\"{:.0}\" stroke=\"var(--faint)\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{t} s</text>",
            y + 5.0,
            y + 20.0
        );
        t += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_scale_covers_all_values() {
        let log = AxisScale::logarithmic_for([0.04, 0.3, 70.0].into_iter());
        assert_eq!((log.y(0.001), log.y(1e6)), (PANEL_HEIGHT, 0.0));
        assert_eq!(log.axis_ticks().len(), 5);
        assert!(log.y(0.04) > log.y(0.3));
        let linear = AxisScale::linear_for([0.0, 19.9].into_iter());
        assert_eq!((linear.highest, linear.y(0.0)), (30.0, PANEL_HEIGHT));
        assert_eq!(AxisScale::logarithmic_for(std::iter::empty()).axis_ticks(), [0.1, 1.0]);
    }

    #[test]
    fn plot_steps_have_median_and_highest() {
        let points =
            [(0.01, Some(3.0)), (0.02, Some(1.0)), (0.03, Some(2.0)), (0.04, None), (0.25, Some(9.0))];
        assert_eq!(summarize_in_steps(&points), [(0.05, 2.0, 3.0), (0.25, 9.0, 9.0)]);
    }
}
